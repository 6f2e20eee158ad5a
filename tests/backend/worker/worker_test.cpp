// Real worker processes that crash, hang and lie, and a parent that goes on.
#include "backend/worker/worker.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <thread>

#include "backend/worker/logged_worker.h"
#include "error_of.h"

namespace moetune {
namespace {

using fake::contender;
using fake::cpu;

template <typename Action>
CandidateFault fault_of(Action action) {
  try {
    action();
  } catch (const CandidateFault& fault) {
    return fault;
  }
  ADD_FAILURE() << "expected a CandidateFault";
  return CandidateFault(Status::ok, "");
}

class Worker : public LoggedWorker {
 protected:
  std::unique_ptr<Backend> open(const std::string& faults) const { return make_worker_backend(options(faults)); }

  std::unique_ptr<Backend> open_impatient(const std::string& faults) const {
    WorkerOptions impatient = options(faults);
    impatient.trial_seconds = impatient.load_seconds = impatient.compile_seconds = 0.5;
    impatient.trial_factor = 1;
    impatient.start_seconds = 20;
    return make_worker_backend(impatient);
  }

  std::unique_ptr<Backend> loaded(const std::string& faults) const {
    auto backend = open(faults);
    backend->load(problem_);
    return backend;
  }

  const Problem problem_ = make_problem(fake::small_cell());
  const Shape shape_ = problem_.shape;
};

TEST_F(Worker, AnswersLikeTheBackendItself) {
  auto backend = loaded("");
  fake::FakeBackend own;
  EXPECT_EQ(backend->device(), own.device());
  EXPECT_EQ(backend->environment(), own.environment());
  EXPECT_EQ(backend->baselines(), own.baselines());
  EXPECT_EQ(backend->verify(contender(cpu(24))).elements, 2048);
  const SampleRequest four{.blocks = 4};
  const std::vector<Block> there = backend->sample(contender(cpu(24)), four),
                           here = own.sample(contender(cpu(24)), four);
  ASSERT_EQ(there.size(), 4U);
  EXPECT_EQ(there[3].seconds, here[3].seconds);
  EXPECT_EQ(backend->ceilings().dense_burst, own.ceilings().dense_burst);
  EXPECT_EQ(count("hello"), 1);
}

TEST_F(Worker, ServesAThreadOfTheSameProcessToo) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  std::thread server([&] {
    serve_worker(ends[1],
                 [](const std::string&, const BackendOptions&) { return std::make_unique<fake::FakeBackend>(); });
    ::close(ends[1]);
  });
  const std::string asked = "{\"id\":7,\"call\":\"verify\"}\nno JSON\n{\"id\":8,\"call\":\"dance\"}\n";
  ASSERT_EQ(::write(ends[0], asked.data(), asked.size()), static_cast<ssize_t>(asked.size()));
  ::shutdown(ends[0], SHUT_WR);
  std::string answers;
  char chunk[512];
  for (ssize_t got; (got = ::read(ends[0], chunk, sizeof chunk)) > 0;) answers.append(chunk, static_cast<size_t>(got));
  server.join();
  ::close(ends[0]);
  EXPECT_TRUE(holds(answers, "asked to verify before hello")) << answers;
  EXPECT_TRUE(holds(answers, "\"id\":7")) << answers;
  EXPECT_TRUE(holds(answers, "the request:1:2: not valid JSON")) << answers;
  EXPECT_TRUE(holds(answers, "asked to dance before hello")) << answers;
}

TEST_F(Worker, ACrashIsTheCandidatesAndTheRunGoesOn) {
  auto backend = loaded("crash=block_m=24;say=CUDA error 700:\n  an illegal address");
  const CandidateFault fault = fault_of([&] { backend->verify(contender(cpu(24))); });
  EXPECT_EQ(fault.status, Status::crashed);
  EXPECT_TRUE(holds(fault.what(), "the worker died of signal 6 (Aborted) in verify")) << fault.what();
  EXPECT_TRUE(holds(fault.what(), "its last words: \"CUDA error 700: an illegal address")) << fault.what();
  EXPECT_TRUE(backend->verify(contender(cpu(48))).ok);
  EXPECT_EQ(backend->sample(contender(cpu(48)), {.blocks = 2}).size(), 2U);
  EXPECT_EQ(count("hello"), 2);
  EXPECT_EQ(count("load"), 2);  // the new worker has what the old one had
}

TEST_F(Worker, ANewWorkerGetsTheWholeLayer) {
  auto backend = open("crash-sample=then cpu block_m=24");
  backend->load_layer(problem_, problem_);
  const auto pair_of = [](const Candidate& up, const Candidate& down) {
    return Contender{.baseline = "", .candidate = up, .down = down};
  };
  EXPECT_TRUE(backend->verify(pair_of(cpu(24), cpu(48))).ok);
  const CandidateFault fault = fault_of([&] { backend->sample(pair_of(cpu(48), cpu(24)), {}); });
  EXPECT_EQ(fault.status, Status::crashed);
  EXPECT_EQ(backend->sample(pair_of(cpu(24), cpu(48)), {.blocks = 2}).size(), 2U);
  EXPECT_EQ(backend->sample(pair_of({}, cpu(48)), {}).size(), 1U);
  EXPECT_EQ(count("load_layer"), 2);
  EXPECT_EQ(count("references"), 0) << "a layer has none";
  backend->load(problem_);
  EXPECT_TRUE(backend->verify(contender(cpu(48))).ok);
  EXPECT_EQ(count("load"), 3);
  EXPECT_EQ(count("references"), 1);
}

TEST_F(Worker, AFloodOnStandardErrorNeitherBlocksNorFillsMemory) {
  auto backend = loaded("crash=block_m=24;say=" + std::string(20000, 'x') + " the end");
  const CandidateFault fault = fault_of([&] { backend->verify(contender(cpu(24))); });
  EXPECT_TRUE(holds(fault.what(), "the end")) << fault.what();
  EXPECT_LT(std::string(fault.what()).size(), 1000U);
}

TEST_F(Worker, AHangIsKilledWhenItsTimeIsUp) {
  auto backend = open_impatient("hang=block_m=24;hang-sample=block_m=36");
  backend->load(problem_);
  EXPECT_TRUE(backend->verify(contender(cpu(36))).ok);
  const CandidateFault sampled = fault_of([&] { backend->sample(contender(cpu(36)), {}); });
  EXPECT_EQ(sampled.status, Status::timeout);
  EXPECT_TRUE(holds(sampled.what(), "sample took longer than")) << sampled.what();
  const auto begin = std::chrono::steady_clock::now();
  const CandidateFault fault = fault_of([&] { backend->verify(contender(cpu(24))); });
  EXPECT_EQ(fault.status, Status::timeout);
  EXPECT_TRUE(holds(fault.what(), "verify took longer than 500 ms")) << fault.what();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_TRUE(backend->verify(contender(cpu(48))).ok);
}

TEST_F(Worker, SlowReferencesAreNoCandidatesFault) {
  WorkerOptions impatient = options("slow-references=0.8");
  impatient.trial_seconds = 0.5;
  impatient.trial_factor = 1;
  const auto backend = make_worker_backend(impatient);
  backend->load(problem_);
  EXPECT_TRUE(backend->verify(contender(cpu(24))).ok);
  EXPECT_TRUE(backend->verify(contender(cpu(48))).ok);
  EXPECT_EQ(count("references"), 1);
}

TEST_F(Worker, AHangInTheReferencesIsTheMachines) {
  auto backend = open_impatient("references-hang");
  backend->load(problem_);
  EXPECT_FALSE(backend->sample(contender(cpu(24)), {}).empty());  // needs none
  const Caught caught = error_of([&] { backend->verify(contender(cpu(24))); });
  EXPECT_EQ(caught.exit, Exit::machine);
  EXPECT_TRUE(holds(caught.what, "references took longer than 500 ms")) << caught.what;
}

TEST_F(Worker, RepeatsMayTakeAsLongAsAsked) {
  auto backend = open_impatient("hang-repeat=block_m=24");
  backend->load(problem_);
  EXPECT_EQ(backend->repeat(contender(cpu(48)), 0.7).launches, 100);  // a trial may take half a second
  const CandidateFault fault = fault_of([&] { backend->repeat(contender(cpu(24)), 0.1); });
  EXPECT_EQ(fault.status, Status::timeout);
  EXPECT_TRUE(holds(fault.what(), "repeat took longer than 700 ms")) << fault.what();
  EXPECT_EQ(backend->repeat(contender(cpu(48)), 0.01).launches, 100);
}

TEST_F(Worker, ResultsThatDifferAreReported) {
  auto backend = loaded("differ=block_m=24;crash-repeat=block_m=16");
  const Repetition repetition = backend->repeat(contender(cpu(24)), 0.01);
  EXPECT_EQ(repetition.launches, 9);
  EXPECT_EQ(repetition.different, 2);
  EXPECT_EQ(repetition.reason, "launch 4 differs");
  EXPECT_EQ(fault_of([&] { backend->repeat(contender(cpu(16)), 0.01); }).status, Status::crashed);
  EXPECT_EQ(backend->repeat(contender(cpu(48)), 0.01).different, 0);
}

TEST_F(Worker, AFailedLaunchEndsTheWorkerQuietly) {
  auto backend = loaded("launch=block_m=24");
  for (int i = 0; i < 5; ++i) {  // more than three: no death, no harm
    const CandidateFault fault = fault_of([&] { backend->verify(contender(cpu(24))); });
    EXPECT_EQ(fault.status, Status::launch_error);
    EXPECT_STREQ(fault.what(), "an illegal memory access was encountered");  // never: the context is lost
  }
  EXPECT_TRUE(backend->verify(contender(cpu(48))).ok);
  EXPECT_EQ(count("hello"), 6);
}

TEST_F(Worker, AWrongResultIsAVerdict) {
  auto backend = loaded("wrong=block_m=24");
  EXPECT_FALSE(backend->verify(contender(cpu(24))).ok);
  EXPECT_EQ(backend->verify(contender(cpu(24))).reason, "7 of 2048 elements differ");
  EXPECT_TRUE(backend->verify(contender(cpu(48))).ok);
  EXPECT_EQ(count("hello"), 1);
}

TEST_F(Worker, ManyCrashesInARowAreCandidatesAsLongAsTheDeviceWorks) {
  auto backend = loaded("crash=block_m=24");
  backend->sample(contender(cpu(48)), {});
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(fault_of([&] { backend->verify(contender(cpu(24))); }).status, Status::crashed) << i;
}

TEST_F(Worker, ThreeDeathsWithNothingThatRunsAreTheMachines) {
  auto backend = loaded("crash=;crash-sample=");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fault_of([&] { backend->verify(contender(cpu(24))); }).status, Status::crashed);
  const Caught caught = error_of([&] { backend->verify(contender(cpu(24))); });
  EXPECT_EQ(caught.exit, Exit::machine);
  EXPECT_TRUE(holds(caught.what, "died 3 times in a row; loop, which should run, does not")) << caught.what;
  EXPECT_TRUE(holds(caught.hint, "--resume")) << caught.hint;
}

TEST_F(Worker, ACompilerCrashIsFoundByHalving) {
  auto backend = loaded("compile-crash=block_n=128");
  const std::vector<Candidate> candidates = {cpu(12), cpu(24, 128), cpu(36), cpu(48), cpu(60, 128)};
  const std::vector<CompileResult> results = backend->compile(shape_, candidates);
  ASSERT_EQ(results.size(), 5U);
  for (size_t i = 0; i < 5; ++i)
    EXPECT_EQ(results[i].status, i == 1 || i == 4 ? Status::compile_error : Status::ok) << i;
  EXPECT_TRUE(holds(results[1].reason, "the compiler crashed: the worker died of signal 6")) << results[1].reason;
  EXPECT_TRUE(backend->verify(contender(cpu(12))).ok);
}

TEST_F(Worker, ACompilerHangIsACompileError) {
  auto backend = open_impatient("compile-hang=block_m=24");
  const std::vector<CompileResult> results = backend->compile(shape_, std::vector{cpu(12), cpu(24)});
  EXPECT_EQ(results.at(0).status, Status::ok);
  EXPECT_EQ(results.at(1).status, Status::compile_error);
  EXPECT_TRUE(holds(results[1].reason, "the compiler hung: compile took longer than")) << results[1].reason;
}

TEST_F(Worker, ANewWorkerCompilesWhatItIsAskedFor) {
  auto backend = loaded("crash=block_m=24");
  backend->compile(shape_, std::vector{cpu(12), cpu(24), cpu(48)});
  fault_of([&] { backend->verify(contender(cpu(24))); });
  backend->verify(contender(cpu(48)));
  backend->sample(contender(cpu(48)), {});
  EXPECT_EQ(count("compile 3"), 1);
  EXPECT_EQ(count("compile 1"), 1);  // once, by the new worker
}

TEST_F(Worker, NoSuchProgramIsTheMachines) {
  WorkerOptions options;
  options.command = {"/nowhere/moetune", "worker"};
  const Caught caught = error_of([&] { make_worker_backend(options); });
  EXPECT_EQ(caught.exit, Exit::machine);
  EXPECT_EQ(caught.what, "cannot start '/nowhere/moetune': No such file or directory");
}

struct Fault {
  std::string word, faults;  // the worker's argument, and what is planted
  Exit exit;
  std::string sentence;
  int hellos, loads;
};

// Where a worker starts or loads. A crash is tried once more.
TEST_F(Worker, FaultsBeforeATrialAreNoCandidates) {
  for (const Fault& fault : std::initializer_list<Fault>{
           {"serve", "hello-error", Exit::machine, "no such GPU", 1, 0},
           {"serve", "hello-crash", Exit::machine, "did not start: the worker died of signal 6", 3, 0},
           {"serve", "hello-hang", Exit::machine, "hello took longer than 500 ms", 1, 0},
           {"leave", "", Exit::machine, "exited with code 7", 0, 0},
           {"babble", "", Exit::request, "the worker's answer:1:1: not valid JSON", 0, 0},
           {"serve", "load-crash", Exit::machine, "could not be loaded: the worker died of signal 6", 2, 2},
           {"serve", "load-hang", Exit::machine, "load took longer than 500 ms", 1, 1},
           {"serve", "load-error", Exit::bug, "an invariant broke", 1, 1}}) {
    std::filesystem::remove(log_path());
    WorkerOptions faulty = options(fault.faults);
    faulty.command[1] = fault.word;
    faulty.load_seconds = fault.faults == "load-hang" ? 0.5 : faulty.load_seconds;
    faulty.start_seconds = fault.faults == "hello-hang" ? 0.5 : faulty.start_seconds;
    const Caught caught = error_of([&] { make_worker_backend(faulty)->load(problem_); });
    EXPECT_EQ(caught.exit, fault.exit) << caught.what;
    EXPECT_TRUE(holds(caught.what, fault.sentence)) << caught.what;
    EXPECT_EQ(count("hello"), fault.hellos) << fault.faults;
    EXPECT_EQ(count("load"), fault.loads) << fault.faults;
  }
}

TEST_F(Worker, OneThatIsKilledAtTheStartIsStartedAgain) {
  open("hello-kill-once=" + (folder_.path() / "once").string());
  EXPECT_EQ(count("hello"), 2);
}

TEST_F(Worker, OutOfMemoryCrossesWithItsSize) {
  auto backend = open("oom=5000000000");
  try {
    backend->load(problem_);
    FAIL() << "expected OutOfMemory";
  } catch (const OutOfMemory& memory) {
    EXPECT_EQ(memory.needed_bytes, 5000000000);
    EXPECT_STREQ(memory.what(), "too little is free");
  }
  EXPECT_EQ(count("hello"), 1);
  EXPECT_EQ(backend->compile(shape_, std::vector{cpu(12)}).size(), 1U);  // the worker lives on
}

TEST_F(Worker, AWorkerThatIsKilledTwiceInLoadIsOutOfMemory) {
  auto backend = open("load-kill");
  EXPECT_THROW(backend->load(problem_), OutOfMemory);
  EXPECT_EQ(count("load"), 2);
}

TEST_F(Worker, KilledWhileIdleIsNobodysFault) {
  auto backend = loaded("");
  backend->verify(contender(cpu(24)));
  ::kill(processes().back(), SIGKILL);
  sleep_ms(50);
  EXPECT_EQ(backend->sample(contender(cpu(24)), {}).size(), 1U);
  EXPECT_EQ(count("hello"), 2);
}

TEST_F(Worker, KilledOnceInATrialIsForgiven) {
  const std::filesystem::path once = folder_.path() / "once";
  auto backend = loaded("hang-once=" + once.string());
  std::jthread killer([&] {
    for (int i = 0; i < 10000 && !std::filesystem::exists(once); ++i) sleep_ms(1);  // until it hangs
    ::kill(processes().back(), SIGKILL);
  });
  EXPECT_EQ(backend->sample(contender(cpu(24)), {}).size(), 1U);
  EXPECT_EQ(count("sample"), 2);
}

TEST_F(Worker, ACrashByItselfIsNotForgiven) {
  auto backend = loaded("crash-once=" + (folder_.path() / "once").string());
  EXPECT_EQ(fault_of([&] { backend->sample(contender(cpu(24)), {}); }).status, Status::crashed);
  EXPECT_EQ(backend->sample(contender(cpu(24)), {}).size(), 1U);
}

TEST_F(Worker, SignalsOfTheTerminalAreForTheParent) {
  auto backend = loaded("");
  const pid_t worker = processes().back();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::kill(worker, signal);
  sleep_ms(20);
  backend->verify(contender(cpu(24)));
  EXPECT_EQ(processes().back(), worker);
}

int open_descriptors() {
  DIR* folder = ::opendir("/proc/self/fd");
  int count = 0;
  while (::readdir(folder)) ++count;
  ::closedir(folder);
  return count;
}

TEST_F(Worker, LeavesNoDescriptorsAndNoZombies) {
  const int before = open_descriptors();
  {
    auto backend = loaded("crash=block_m=24;launch=block_m=36");
    for (int i = 0; i < 4; ++i) {
      EXPECT_THROW(backend->verify(contender(cpu(24))), CandidateFault);
      EXPECT_THROW(backend->verify(contender(cpu(36))), CandidateFault);
      backend->verify(contender(cpu(48)));
    }
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  for (const pid_t pid : processes()) EXPECT_NE(::kill(pid, 0), 0) << pid;
}

// The parent dies (kill -9) while its worker hangs in a launch: the worker must not stay behind on the device.
TEST_F(Worker, DiesWithItsParent) {
  const WorkerOptions hanging = options("hang=");
  const pid_t parent = ::fork();
  if (parent == 0) {
    auto backend = make_worker_backend(hanging);
    backend->load(problem_);
    backend->verify(contender(cpu(24)));
    ::_exit(0);
  }
  ASSERT_TRUE(comes_true([&] { return count("verify") > 0; }));
  const pid_t worker = processes().back();
  EXPECT_EQ(::kill(worker, 0), 0);
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  EXPECT_TRUE(comes_true([&] { return is_gone(worker); }));
}

TEST_F(Worker, ABusySignalHandlerDisturbsNothing) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {};  // without SA_RESTART: every call may come back with EINTR
  ::sigaction(SIGUSR1, &action, &before);
  auto backend = loaded("");
  std::atomic<bool> done{false};
  const pthread_t target = ::pthread_self();
  std::jthread disturber([&] {
    while (!done) {
      ::pthread_kill(target, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(backend->sample(contender(cpu(24)), {.blocks = 3}).size(), 3U);
  backend->load(make_problem(fake::small_cell(4096)));
  done = true;
  disturber.join();
  ::sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(count("hello"), 1);
}

TEST_F(Worker, LargeProblemsCrossWhole) {
  auto backend = open("");
  const Problem large = make_problem(fake::small_cell(100000));
  backend->load(large);
  EXPECT_TRUE(backend->verify(contender(cpu(24))).ok);
}

TEST_F(Worker, ListsDevices) {
  const std::vector<ListedDevice> devices = list_devices_in_worker(options(""));
  ASSERT_FALSE(devices.empty());
  EXPECT_EQ(devices.back().word, "cpu");
}

}  // namespace
}  // namespace moetune
