// Compiling in the background: processes that fill a cache, crash, hang and are killed, while the caller goes on.
#include "backend/worker/compiler_pool.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <latch>
#include <thread>

#include "backend/worker/logged_worker.h"
#include "base/error.h"
#include "built_in.h"

namespace moetune {
namespace {

namespace fs = std::filesystem;
using fake::cpu;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int kill_children() {
  int killed = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat");
    std::string id, name, state;
    pid_t parent = 0;
    if (stat >> id >> name >> state >> parent && parent == ::getpid() && ::kill(std::stoi(id), SIGKILL) == 0) ++killed;
  }
  return killed;
}

class CompilesInAPool : public LoggedWorker {
 protected:
  // Of the fake backend, one candidate at a time.
  WorkerOptions options(const std::string& faults = "", int threads = 1) const {
    WorkerOptions result = LoggedWorker::options(faults);
    result.backend.compile_threads = threads;
    return result;
  }

  const Shape shape_ = fake::small_cell().shape;
  const std::vector<Candidate> four_ = {cpu(16), cpu(24), cpu(48), cpu(96)};
};

TEST_F(CompilesInAPool, StartsNothingUntilSomethingIsWanted) {
  CompilerPool pool(options());
  pool.want(shape_, {});
  EXPECT_TRUE(calls().empty());
}

TEST_F(CompilesInAPool, CompilesEachWantedCandidateOnce) {
  CompilerPool pool(options());
  pool.want(shape_, four_);
  ASSERT_TRUE(comes_true([&] { return count("compile 1") == 4; }));
  pool.want(shape_, four_);
  pool.want(shape_, std::vector{cpu(24), cpu(24, 32), cpu(24, 32)});
  ASSERT_TRUE(comes_true([&] { return count("compile 1") == 5; }));
  EXPECT_EQ(count("hello"), 1);
  Shape other = shape_;
  other.layer.n *= 2;
  pool.want(other, std::vector{cpu(24)});
  EXPECT_TRUE(comes_true([&] { return count("compile 1") == 6; }));
}

TEST_F(CompilesInAPool, LeavesHalfOfTheProcessesToWhatIsNext) {
  CompilerPool pool(options("compile-hang=", 4));
  pool.want(shape_, {}, four_);
  ASSERT_TRUE(comes_true([&] { return count("compile 1") == 2; }));
  sleep_ms(100);
  EXPECT_EQ(count("compile 1"), 2);
  pool.want(shape_, std::vector{cpu(24, 32)}, four_);
  ASSERT_TRUE(comes_true([&] { return count("compile 1") == 3; }));
  sleep_ms(100);
  EXPECT_EQ(count("compile 1"), 3);
}

TEST_F(CompilesInAPool, ReportsWhichIsDoneFirst) {
  CompilerPool stuck(options("compile-hang=block_m=96"));
  stuck.want(shape_, four_);
  EXPECT_EQ(stuck.first_of(shape_, std::vector{cpu(96), cpu(16)}), 1U);  // one process: in order
  CompilerPool pool(options());
  pool.want(shape_, four_);
  EXPECT_EQ(pool.first_of(shape_, std::vector{cpu(24, 32), cpu(96)}), 1U);
  EXPECT_EQ(pool.first_of(shape_, std::vector{cpu(24, 32)}), 0U) << "nobody wanted it";
}

TEST_F(CompilesInAPool, StartsAsManyProcessesAsItHasThreads) {
  CompilerPool pool(options("compile-hang=", 3));
  pool.want(shape_, std::span(four_).first(2));
  ASSERT_TRUE(comes_true([&] { return count("compile 1") == 2; }));
  EXPECT_EQ(count("hello"), 2) << "one each";
  pool.want(shape_, four_);
  ASSERT_TRUE(comes_true([&] { return count("compile 1") == 3; }));
  sleep_ms(100);
  EXPECT_EQ(count("hello"), 3);
}

TEST_F(CompilesInAPool, GivesTheResults) {
  CompilerPool pool(options("", 2));
  const auto results = pool.compile(shape_, four_);
  ASSERT_EQ(results.size(), 4U);
  for (const Candidate& candidate : four_) EXPECT_EQ(results.at(candidate).status, Status::ok);
  EXPECT_EQ(pool.compile(shape_, four_).size(), 4U);
  EXPECT_EQ(count("compile 1"), 4) << "compiled again";
}

TEST_F(CompilesInAPool, WhatIsAskedForComesBeforeWhatIsWanted) {
  CompilerPool pool(options("compile-hang=block_m=24"));
  pool.want(shape_, std::vector{cpu(24), cpu(16), cpu(48), cpu(64)});
  ASSERT_TRUE(comes_true([&] { return count("compile 1") == 1; }));  // which hangs
  std::latch begun(1);
  std::thread asking([&] {
    begun.count_down();
    EXPECT_EQ(pool.compile(shape_, std::vector{cpu(96, 32)}).size(), 1U);
  });
  begun.wait();
  sleep_ms(500);
  ::kill(processes().back(), SIGABRT);
  asking.join();
  EXPECT_EQ(calls().at(3), "compile 1 " + text(cpu(96, 32))) << "after hello, the one that hung, and hello";
}

TEST_F(CompilesInAPool, WaitsForWhatIsUnderWay) {
  CompilerPool pool(options());
  pool.want(shape_, std::span(four_).first(1));
  EXPECT_EQ(pool.compile(shape_, four_).size(), 4U);
  EXPECT_EQ(count("compile 1"), 4);
}

TEST_F(CompilesInAPool, ALaterWishReplacesWhatIsNotBegun) {
  CompilerPool pool(options("compile-hang=block_m=24"));
  pool.want(shape_, std::vector{cpu(24), cpu(16), cpu(48)});
  ASSERT_TRUE(comes_true([&] { return count("compile 1") == 1; }));  // which hangs
  pool.want(shape_, std::vector{cpu(96)});
  ::kill(processes().back(), SIGABRT);
  ASSERT_TRUE(comes_true([&] { return count("compile 1") == 2; }));
  sleep_ms(100);
  EXPECT_EQ(count("compile 1"), 2) << "compiled what was no longer wanted";
}

TEST_F(CompilesInAPool, LeavesOutTheCandidateThatEndsTheCompiler) {
  CompilerPool pool(options("compile-crash=block_m=24"));
  const auto results = pool.compile(shape_, four_);
  EXPECT_EQ(results.size(), 3U);
  EXPECT_FALSE(results.contains(cpu(24)));
  EXPECT_EQ(count("hello"), 2) << "goes on in a new process";
  EXPECT_EQ(pool.compile(shape_, std::vector{cpu(24), cpu(16, 32)}).size(), 1U);
  EXPECT_EQ(count("compile 1"), 5);
}

TEST_F(CompilesInAPool, GivesUpWhereEachCandidateEndsTheCompiler) {
  CompilerPool pool(options("compile-crash="));
  pool.want(shape_, four_);
  ASSERT_TRUE(comes_true([&] { return count("compile 1") == 3; }));
  ASSERT_TRUE(comes_true([&] { return is_gone(processes().back()); }));
  pool.want(shape_, std::vector{cpu(96, 32)});
  sleep_ms(100);
  EXPECT_EQ(count("hello"), 3);
  EXPECT_TRUE(pool.compile(shape_, four_).empty());
}

TEST_F(CompilesInAPool, SaysNothingWhereTheProcessCannotServe) {
  for (const char* fault : {"hello-error", "hello-crash="}) {
    CompilerPool pool(options(fault));
    pool.want(shape_, four_);
    ASSERT_TRUE(comes_true([&] { return count("hello") >= 1; }));
    EXPECT_EQ(count("compile"), 0);
    fs::remove(log_path());
  }
  WorkerOptions missing = options();
  missing.command = {"/nonexistent/moetune"};
  CompilerPool pool(missing);
  pool.want(shape_, four_);
}

TEST_F(CompilesInAPool, ACpuHasNothingToCompile) {
  const auto backend = make_worker_backend(options());
  EXPECT_FALSE(backend->compile_ahead(shape_, four_, {}));
  sleep_ms(100);
  EXPECT_EQ(count("hello"), 1);
}

TEST_F(CompilesInAPool, EndsAtOnceWhileTheCompilerHangs) {
  pid_t process = 0;
  double begin = 0;
  {
    CompilerPool pool(options("compile-hang="));
    pool.want(shape_, four_);
    ASSERT_TRUE(comes_true([&] { return count("compile 1") == 1; }));
    process = processes().back();
    begin = now();
  }
  EXPECT_LT(now() - begin, 1);
  EXPECT_TRUE(is_gone(process));
}

#ifdef MOETUNE_HAS_CUDA
// With the real compiler: needs NVRTC, and no GPU.
class CompilesForReal : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1);
    try {
      (void)open_backend("arch:sm_90a", {})->environment();  // with NVRTC's version
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    const DeviceInfo device = device_of_arch("sm_90a");
    SearchSpace space = load_space("full", built_in());
    keep_variants(space, {"simt"}, built_in());
    candidates_ = enumerate(space, cell_.shape, device).legal;  // which compile fastest
    ASSERT_GE(candidates_.size(), 6U);
    candidates_.resize(6);
  }
  void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }

  static WorkerOptions options() {
    WorkerOptions result;
    result.command = {MOETUNE_BINARY, "worker"};
    result.device = "arch:sm_90a";
    result.backend.compile_threads = 2;
    return result;
  }

  int cubins() const {
    int count = 0;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(cache_.path()))
      count += entry.path().extension() == ".cubin";
    return count;
  }

  bool all_cached() const {
    bool all = true;
    for (const CompileResult& result : open_backend("arch:sm_90a", {})->compile(cell_.shape, candidates_))
      all = all && result.from_cache;
    return all;
  }

  const TemporaryFolder cache_;
  Cell cell_ = fake::small_cell();
  std::vector<Candidate> candidates_;
};

TEST_F(CompilesForReal, FillsTheCacheWhileTheCallerGoesOn) {
  const double begin = now();
  CompilerPool pool(options());
  pool.want(cell_.shape, candidates_);
  EXPECT_LT(now() - begin, 0.5);
  EXPECT_EQ(cubins(), 0);
  ASSERT_TRUE(comes_true([&] { return cubins() == 6; }, 120));
  EXPECT_TRUE(all_cached());
}

TEST_F(CompilesForReal, OutlivesItsProcess) {
  CompilerPool pool(options());
  pool.want(cell_.shape, std::span(candidates_).first(2));
  ASSERT_TRUE(comes_true([&] { return cubins() > 0; }, 120));
  ASSERT_EQ(kill_children(), 2);
  pool.want(cell_.shape, candidates_);
  EXPECT_TRUE(comes_true([&] { return cubins() == 6; }, 120));
  EXPECT_TRUE(all_cached());
}

TEST_F(CompilesForReal, ABackendTakesItsKernelsFromThePool) {
  const auto compile = [&](bool cache) {
    WorkerOptions one = options();
    one.backend.cache = cache;
    const std::vector<CompileResult> results = make_worker_backend(one)->compile(cell_.shape, candidates_);
    EXPECT_EQ(results.size(), candidates_.size());
    return std::count_if(results.begin(), results.end(), [](const CompileResult& r) { return r.from_cache; });
  };
  EXPECT_EQ(compile(false), 0);
  EXPECT_EQ(cubins(), 0);
  EXPECT_EQ(compile(true), 0) << "a kernel that was compiled for this call is not called cached";
  EXPECT_EQ(cubins(), 6);
  EXPECT_EQ(compile(true), 6);
}

TEST_F(CompilesForReal, OpensNoDevice) {
  const std::unique_ptr<Backend> compiler = open_backend("arch:sm_90a", {});
  EXPECT_EQ(compiler->device(), device_of_arch("sm_90a"));
  EXPECT_THROW(compiler->load(make_problem(cell_)), Error);
}
#endif

}  // namespace
}  // namespace moetune
