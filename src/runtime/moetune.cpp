// The C interface: errors become texts.
#include "runtime/moetune.h"

#include <algorithm>
#include <array>
#include <exception>
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

template <class Do>
int told(Do run) noexcept {
  try {
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

void reserve(moetune_workspace& workspace, const moetune_request* requests, size_t count, int64_t tokens) {
  for (LoadedKernel* kernel : workspace.library.kernels({requests, count}))
    workspace.memory.reserve(kernel->buffers(tokens));
}

}  // namespace

extern "C" {

const char* moetune_error(void) { return last_error.c_str(); }

int moetune_open(const char* folder, int other_gpu, moetune_library** library) {
  return told([&] { *library = new moetune_library(folder, other_gpu != 0); });
}
void moetune_close(moetune_library* library) { delete library; }
int moetune_device(const moetune_library* library) { return library->device(); }

int moetune_list(const moetune_library* library, const moetune_served** served, size_t* count) {
  *served = library->served().data(), *count = library->served().size();
  return 0;
}

int moetune_pick(moetune_library* library, const moetune_request* request, int64_t tokens, double skew,
                 const moetune_kernel** kernel) {
  return told([&] { *kernel = reinterpret_cast<const moetune_kernel*>(&library->pick(*request, tokens, skew)); });
}
int moetune_pick_layer(moetune_library* library, const moetune_request* up, const moetune_request* down, int64_t tokens,
                       double skew, const moetune_kernel** up_kernel, const moetune_kernel** down_kernel) {
  return told([&] {
    const auto [first, second] = library->pick_layer(*up, *down, tokens, skew);
    *up_kernel = reinterpret_cast<const moetune_kernel*>(first);
    *down_kernel = reinterpret_cast<const moetune_kernel*>(second);
  });
}
const char* moetune_kernel_name(const moetune_kernel* kernel) { return loaded(kernel).name().c_str(); }
const char* moetune_kernel_id(const moetune_kernel* kernel) { return loaded(kernel).served().id; }

int moetune_needs(const moetune_kernel* kernel, int64_t tokens, int64_t rows, moetune_need* needs, size_t room,
                  size_t* count) {
  return told([&] {
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
  return told([&] {
    std::unique_ptr<moetune_workspace> made(new moetune_workspace{*library, LaunchWorkspace(library->context())});
    reserve(*made, requests, count, tokens);
    *workspace = made.release();
  });
}
int moetune_reserve(moetune_workspace* workspace, const moetune_request* requests, size_t count, int64_t tokens) {
  return told([&] { reserve(*workspace, requests, count, tokens); });
}
int moetune_reset(moetune_workspace* workspace) {
  return told([&] { workspace->memory.reset(); });
}
int64_t moetune_workspace_bytes(const moetune_workspace* workspace) { return workspace->memory.bytes(); }
void moetune_free_workspace(moetune_workspace* workspace) { delete workspace; }

int moetune_launch(const moetune_kernel* kernel, int64_t tokens, int64_t rows, moetune_workspace* workspace,
                   const moetune_operand* operands, size_t count, void* stream) {
  return moetune_launch_scaled(kernel, tokens, rows, workspace, operands, count, nullptr, stream);
}

int moetune_launch_scaled(const moetune_kernel* kernel, int64_t tokens, int64_t rows, moetune_workspace* workspace,
                          const moetune_operand* operands, size_t count, const moetune_strides* strides, void* stream) {
  return told([&] {
    LoadedKernel& it = loaded(kernel);
    const CurrentContext current(it.library().context());
    it.plan(tokens, rows, strides)
        ->launch({operands, count}, workspace ? &workspace->memory : nullptr, static_cast<CUstream>(stream));
  });
}

int moetune_launch_layer(const moetune_kernel* up_kernel, const moetune_kernel* down_kernel, int64_t tokens,
                         int64_t rows, moetune_workspace* workspace, const moetune_operand* operands, size_t count,
                         void* stream) {
  return told([&] {
    const CurrentContext current(loaded(up_kernel).library().context());
    struct Launch {
      std::shared_ptr<Plan> plan;
      const LaunchWorkspace* memory;
      std::vector<moetune_operand> operands = {};
    };
    std::vector<Launch> launches;
    // `names`: what the caller calls the kernel's x, w, y and bias.
    const auto add = [&](Launch launch, std::array<std::string_view, 4> names) {
      static constexpr const char* kNames[] = {"x", "w", "y", "bias"};
      for (const moetune_operand& it : std::span(operands, count))
        if (const auto at = std::ranges::find(names, it.name) - names.begin(); at < 4)
          launch.operands.push_back({kNames[at], it.data, it.bytes});
        else if (std::ranges::find(kNames, std::string_view(it.name)) == std::end(kNames))
          launch.operands.push_back(it);
      launches.push_back(std::move(launch));
    };
    const LaunchWorkspace* const memory = workspace ? &workspace->memory : nullptr;
    LoadedKernel &up = loaded(up_kernel), &down = loaded(down_kernel);
    add({up.plan(tokens, rows), memory}, {"x", "up", "hidden", "up_bias"});
    add({down.plan(tokens, rows), memory}, {"hidden", "down", "y", "down_bias"});
    if (std::any_of(operands, operands + count, [](const auto& it) { return std::string_view(it.name) == "sum"; }))
      add({down.library().sum(down.served().request, tokens), nullptr}, {"", "", "y", ""});
    for (const Launch& one : launches) one.plan->check(one.operands, one.memory);
    for (const Launch& one : launches)
      one.plan->launch(one.operands, one.memory, static_cast<CUstream>(stream), &one == &launches[1]);
  });
}

int moetune_choose(moetune_library* library, const moetune_choice* how, int64_t tokens, const char* dtype,
                   const void* logits, const void* bias, void* topk_weights, void* topk_ids, void* stream) {
  return told([&] {
    const CurrentContext current(library->context());
    const moetune_operand operands[] = {
        {"topk_weights", topk_weights, -1}, {"topk_ids", topk_ids, -1}, {"logits", logits, -1}, {"bias", bias, -1}};
    library->choose(*how, tokens, dtype ? dtype : "none", bias != nullptr)
        ->launch(operands, nullptr, static_cast<CUstream>(stream));
  });
}

int moetune_route(moetune_library* library, int64_t experts, int64_t slots, int64_t first_expert, int64_t rows,
                  int id_bytes, const void* topk_ids, void* m_sizes, void* gather_indices, void* stream) {
  return told([&] {
    const CurrentContext current(library->context());
    const moetune_operand operands[] = {
        {"m_sizes", m_sizes, -1}, {"gather_indices", gather_indices, -1}, {"topk_ids", topk_ids, -1}};
    library->route(experts, slots, first_expert, rows, id_bytes)
        ->launch(operands, nullptr, static_cast<CUstream>(stream));
  });
}

}  // extern "C"
