// The C interface: errors become texts.
#include "runtime/moetune.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "runtime/driver.h"
#include "runtime/library.h"

using namespace moetune;

struct moetune_library : KernelLibrary {
  using KernelLibrary::KernelLibrary;
};
struct moetune_workspace {
  KernelLibrary& library;
  LaunchWorkspace memory;
};

namespace {

thread_local std::string last_error;

struct Argument {
  const char* name;
  const void* pointer;
};

// Runs a function of the interface, whose pointers must not be null. Errors become the thread's text.
template <class Do>
int guarded(const char* function, std::initializer_list<Argument> pointers, Do run) noexcept {
  try {
    for (const Argument& one : pointers)
      if (!one.pointer) throw request_error(std::string(function) + ": " + one.name + " is null");
    run();
    return 0;
  } catch (const Error& error) {
    last_error = error.what() + (error.hint().empty() ? "" : ": " + error.hint());
  } catch (const std::exception& error) {
    last_error = error.what();
  }
  return 1;
}

LoadedKernel& loaded(const moetune_kernel* kernel) {
  return *reinterpret_cast<LoadedKernel*>(const_cast<moetune_kernel*>(kernel));
}

const moetune_request& whole(const moetune_request& request) {
  for (const auto& [name, text] :
       std::initializer_list<Argument>{{"op", request.op}, {"dtype", request.dtype}, {"fusion", request.fusion}})
    if (!text) throw request_error(std::string("the request's ") + name + " is null");
  return request;
}

void require_question(int64_t tokens, double skew) {
  if (tokens < 0) throw request_error("tokens must not be negative, found " + std::to_string(tokens));
  if (!(skew >= 0) || std::isinf(skew)) throw request_error("skew must be 0, for unknown, or more");
}

void reserve(moetune_workspace& workspace, const moetune_request* requests, size_t count, int64_t tokens) {
  if (count > 0 && !requests) throw request_error("requests is null, but count is not 0");
  const std::span all(requests, count);
  for (const moetune_request& request : all) whole(request);
  for (LoadedKernel* kernel : workspace.library.kernels(all)) workspace.memory.reserve(kernel->buffers(tokens));
}

std::span<const moetune_operand> all_of(const moetune_operand* operands, size_t count) {
  if (count > 0 && !operands) throw request_error("operands is null, but count is not 0");
  return {operands, count};
}

const LaunchWorkspace* memory_of(const moetune_workspace* workspace, const KernelLibrary& library) {
  if (workspace && &workspace->library != &library)
    throw request_error("the workspace is of another library than the kernel");
  return workspace ? &workspace->memory : nullptr;
}

}  // namespace

extern "C" {

const char* moetune_error(void) { return last_error.c_str(); }

int moetune_open(const char* folder, int other_gpu, moetune_library** library) {
  return guarded("moetune_open", {{"folder", folder}, {"library", library}},
                 [&] { *library = new moetune_library(folder, other_gpu != 0); });
}
void moetune_close(moetune_library* library) { delete library; }
int moetune_device(const moetune_library* library) { return library ? library->device() : -1; }

int moetune_list(const moetune_library* library, const moetune_served** served, size_t* count) {
  return guarded("moetune_list", {{"library", library}, {"served", served}, {"count", count}},
                 [&] { *served = library->served().data(), *count = library->served().size(); });
}

int moetune_pick(moetune_library* library, const moetune_request* request, int64_t tokens, double skew,
                 const moetune_kernel** kernel) {
  return guarded("moetune_pick", {{"library", library}, {"request", request}, {"kernel", kernel}}, [&] {
    require_question(tokens, skew);
    *kernel = reinterpret_cast<const moetune_kernel*>(&library->pick(whole(*request), tokens, skew));
  });
}
int moetune_pick_layer(moetune_library* library, const moetune_request* up, const moetune_request* down, int64_t tokens,
                       double skew, const moetune_kernel** up_kernel, const moetune_kernel** down_kernel) {
  const std::initializer_list<Argument> pointers = {
      {"library", library}, {"up", up}, {"down", down}, {"up_kernel", up_kernel}, {"down_kernel", down_kernel}};
  return guarded("moetune_pick_layer", pointers, [&] {
    require_question(tokens, skew);
    const auto [first, second] = library->pick_layer(whole(*up), whole(*down), tokens, skew);
    *up_kernel = reinterpret_cast<const moetune_kernel*>(first);
    *down_kernel = reinterpret_cast<const moetune_kernel*>(second);
  });
}
const char* moetune_kernel_name(const moetune_kernel* kernel) { return kernel ? loaded(kernel).name().c_str() : ""; }
const char* moetune_kernel_id(const moetune_kernel* kernel) { return kernel ? loaded(kernel).served().id : ""; }

int moetune_needs(const moetune_kernel* kernel, int64_t tokens, int64_t rows, moetune_need* needs, size_t room,
                  size_t* count) {
  const void* const written = room > 0 ? static_cast<const void*>(needs) : count;
  return guarded("moetune_needs", {{"kernel", kernel}, {"count", count}, {"needs", written}}, [&] {
    const std::shared_ptr<Plan> plan = loaded(kernel).plan(tokens, rows);
    *count = plan->operands().size();
    for (size_t i = 0; i < std::min(room, *count); ++i) {
      const OperandNeed& need = plan->operands()[i];
      needs[i] = {need.name,  need.dtype,    static_cast<int32_t>(need.shape.size()), need.exact, {}, need.top_k,
                  need.bytes, need.alignment};
      std::ranges::copy(need.shape, needs[i].shape);
    }
  });
}

int moetune_make_workspace(moetune_library* library, const moetune_request* requests, size_t count, int64_t tokens,
                           moetune_workspace** workspace) {
  return guarded("moetune_make_workspace", {{"library", library}, {"workspace", workspace}}, [&] {
    std::unique_ptr<moetune_workspace> made(new moetune_workspace{*library, LaunchWorkspace(library->context())});
    reserve(*made, requests, count, tokens);
    *workspace = made.release();
  });
}
int moetune_reserve(moetune_workspace* workspace, const moetune_request* requests, size_t count, int64_t tokens) {
  return guarded("moetune_reserve", {{"workspace", workspace}}, [&] { reserve(*workspace, requests, count, tokens); });
}
int moetune_reset(moetune_workspace* workspace) {
  return guarded("moetune_reset", {{"workspace", workspace}}, [&] { workspace->memory.reset(); });
}
int64_t moetune_workspace_bytes(const moetune_workspace* workspace) {
  return workspace ? workspace->memory.bytes() : 0;
}
void moetune_free_workspace(moetune_workspace* workspace) { delete workspace; }

int moetune_launch(const moetune_kernel* kernel, int64_t tokens, int64_t rows, moetune_workspace* workspace,
                   const moetune_operand* operands, size_t count, void* stream) {
  return moetune_launch_scaled(kernel, tokens, rows, workspace, operands, count, nullptr, stream);
}

int moetune_launch_scaled(const moetune_kernel* kernel, int64_t tokens, int64_t rows, moetune_workspace* workspace,
                          const moetune_operand* operands, size_t count, const moetune_strides* strides, void* stream) {
  return guarded("moetune_launch", {{"kernel", kernel}}, [&] {
    LoadedKernel& it = loaded(kernel);
    const CurrentContext current(it.library().context());
    it.plan(tokens, rows, strides)
        ->launch(all_of(operands, count), memory_of(workspace, it.library()), static_cast<CUstream>(stream));
  });
}

int moetune_launch_layer(const moetune_kernel* up_kernel, const moetune_kernel* down_kernel, int64_t tokens,
                         int64_t rows, moetune_workspace* workspace, const moetune_operand* operands, size_t count,
                         void* stream) {
  return guarded("moetune_launch_layer", {{"up_kernel", up_kernel}, {"down_kernel", down_kernel}}, [&] {
    LoadedKernel &up = loaded(up_kernel), &down = loaded(down_kernel);
    if (&up.library() != &down.library()) throw request_error("the kernels are of two libraries");
    const CurrentContext current(up.library().context());
    const std::span<const moetune_operand> given = all_of(operands, count);
    struct Launch {
      std::shared_ptr<Plan> plan;
      const LaunchWorkspace* memory;
      std::vector<moetune_operand> operands = {};
    };
    std::vector<Launch> launches;
    // `names`: what the caller calls the kernel's x, w, y and bias.
    const auto add = [&](Launch launch, std::array<std::string_view, 4> names) {
      static constexpr const char* kNames[] = {"x", "w", "y", "bias"};
      for (const moetune_operand& it : given)
        if (!it.name)
          continue;
        else if (const auto at = std::ranges::find(names, it.name) - names.begin(); at < 4)
          launch.operands.push_back({kNames[at], it.data, it.bytes});
        else if (std::ranges::find(kNames, std::string_view(it.name)) == std::end(kNames))
          launch.operands.push_back(it);
      launches.push_back(std::move(launch));
    };
    const LaunchWorkspace* const memory = memory_of(workspace, up.library());
    add({up.plan(tokens, rows), memory}, {"x", "up", "hidden", "up_bias"});
    add({down.plan(tokens, rows), memory}, {"hidden", "down", "y", "down_bias"});
    if (std::ranges::any_of(given, [](const auto& it) { return it.name && std::string_view(it.name) == "sum"; }))
      add({down.library().sum(down.served().request, tokens), nullptr}, {"", "", "y", ""});
    for (const Launch& one : launches) one.plan->check(one.operands, one.memory);
    for (const Launch& one : launches)
      one.plan->launch(one.operands, one.memory, static_cast<CUstream>(stream), &one == &launches[1]);
  });
}

int moetune_choose(moetune_library* library, const moetune_choice* how, int64_t tokens, const char* dtype,
                   const void* logits, const void* bias, void* topk_weights, void* topk_ids, void* stream) {
  return guarded("moetune_choose", {{"library", library}, {"how", how}}, [&] {
    const CurrentContext current(library->context());
    const moetune_operand operands[] = {
        {"topk_weights", topk_weights, -1}, {"topk_ids", topk_ids, -1}, {"logits", logits, -1}, {"bias", bias, -1}};
    library->choose(*how, tokens, dtype ? dtype : "none", bias != nullptr)
        ->launch(operands, nullptr, static_cast<CUstream>(stream));
  });
}

int moetune_route(moetune_library* library, int64_t experts, int64_t slots, int64_t first_expert, int64_t rows,
                  int id_bytes, const void* topk_ids, void* m_sizes, void* gather_indices, void* stream) {
  return guarded("moetune_route", {{"library", library}}, [&] {
    const CurrentContext current(library->context());
    const moetune_operand operands[] = {
        {"m_sizes", m_sizes, -1}, {"gather_indices", gather_indices, -1}, {"topk_ids", topk_ids, -1}};
    library->route(experts, slots, first_expert, rows, id_bytes)
        ->launch(operands, nullptr, static_cast<CUstream>(stream));
  });
}

int moetune_reorder(moetune_library* library, const char* format, int64_t experts, int64_t n, int64_t k, int gates,
                    const void* w, const void* w_scales, const void* w_zeros, void* reordered, void* refused,
                    void* stream) {
  const std::initializer_list<Argument> pointers = {
      {"library", library},   {"format", format},       {"w", w},
      {"w_scales", w_scales}, {"reordered", reordered}, {"refused", refused}};
  return guarded("moetune_reorder", pointers, [&] {
    if (std::string_view(format).starts_with("uint4") && !w_zeros)
      throw request_error("reorder: w_zeros is null, and uint4 has zero points");
    const CurrentContext current(library->context());
    const moetune_operand operands[] = {{"reordered", reordered, -1},
                                        {"w", w, -1},
                                        {"w_scales", w_scales, -1},
                                        {"w_zeros", w_zeros, -1},
                                        {"refused", refused, -1}};
    library->reorder(format, experts, n, k, gates)->launch(operands, nullptr, static_cast<CUstream>(stream));
  });
}

}  // extern "C"
