// An export on a device: its manifest, the kernels that are loaded, and which one answers for a computation.
#pragma once
#include <cuda.h>

#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "runtime/plan.h"

namespace moetune {

class KernelLibrary;

/// A kernel for one computation. Its plans are kept.
class LoadedKernel {
 public:
  LoadedKernel(KernelLibrary& library, const JsonAt& kernel, const JsonAt& at, const moetune_served& served);

  const std::string& name() const { return name_; }
  const moetune_served& served() const { return served_; }
  KernelLibrary& library() const { return library_; }

  /// `rows` -1: tokens * top_k. Throws Exit::request for more rows than that, and for `strides` that kernels cannot
  /// follow; null: row-major.
  std::shared_ptr<Plan> plan(int64_t tokens, int64_t rows, const moetune_strides* strides = nullptr);
  std::vector<LaunchBuffer> buffers(int64_t tokens) const;

 private:
  Sizes sizes_of(int64_t tokens, int64_t rows) const;
  std::vector<LaunchBuffer> buffers_of(const Sizes& sizes) const;
  std::vector<OperandNeed> operands_of(Sizes& sizes) const;
  int64_t scale_bytes(const JsonAt& operand, const std::vector<int64_t>& shape, Sizes& sizes) const;

  KernelLibrary& library_;
  JsonAt kernel_, extents_;
  moetune_served served_;
  std::string name_;
  std::vector<JsonAt> launches_;
  std::vector<LoadedFunction> functions_;  // one for each launch
  std::mutex mutex_;
  bool has_scales_ = false;
  std::map<std::array<int64_t, 7>, std::shared_ptr<Plan>> plans_;  // by tokens, rows and strides of scales
};

class KernelLibrary {
 public:
  /// See moetune_open.
  KernelLibrary(const std::filesystem::path& folder, bool other_gpu);
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  CUcontext context() const { return context_; }
  int device() const { return device_; }
  int processors() const { return processors_; }
  const std::vector<moetune_served>& served() const { return served_; }

  LoadedKernel& pick(const moetune_request& request, int64_t tokens, double skew);
  /// Up by pick(), and the down that was tuned together with its cell; where there is none, that of pick().
  std::pair<LoadedKernel*, LoadedKernel*> pick_layer(const moetune_request& up, const moetune_request& down,
                                                     int64_t tokens, double skew);
  /// Those of all token counts; of every computation, if `requests` is empty. A kernel appears once.
  std::vector<LoadedKernel*> kernels(std::span<const moetune_request> requests);
  std::shared_ptr<Plan> route(int64_t experts, int64_t slots, int64_t first_expert, int64_t rows, int id_bytes);
  /// Of logits of `dtype`; see moetune_choose.
  std::shared_ptr<Plan> choose(const moetune_choice& how, int64_t tokens, const std::string& dtype, bool biased);
  /// Of a format of W; see moetune_reorder.
  std::shared_ptr<Plan> reorder(const std::string& format, int64_t experts, int64_t n, int64_t k, int gates);
  /// Of the rows that `down` writes by slot; see moetune_launch_layer.
  std::shared_ptr<Plan> sum(const moetune_request& down, int64_t tokens);
  LoadedFunction load(const JsonAt& launch);

 private:
  /// The plan of a launch of the manifest, kept by its sizes.
  std::shared_ptr<Plan> service(const char* name, const std::string& type, std::initializer_list<const char*> words,
                                std::initializer_list<int64_t> values, std::vector<OperandNeed> operands);
  void find_device(bool other_gpu);
  void read_served();
  std::vector<size_t> answers(const moetune_request& request) const;
  size_t place_of(const moetune_request& request, int64_t tokens, double skew) const;
  Error lacks(const moetune_request& request) const;
  LoadedKernel& load(size_t place);

  std::filesystem::path folder_;
  Json manifest_;
  JsonAt at_;
  CUcontext context_ = nullptr;
  int device_ = 0, capability_ = 0, processors_ = 0;
  bool may_follow_ = false;                     // see LoadedFunction
  std::vector<moetune_served> served_;          // on this GPU; texts belong to the manifest
  std::vector<std::pair<JsonAt, int>> places_;  // of served_, with closeness
  std::recursive_mutex mutex_;
  std::map<std::string, CUmodule> modules_;                  // by file
  std::map<size_t, std::unique_ptr<LoadedKernel>> kernels_;  // by place in served_
  std::map<std::pair<std::string, std::vector<int64_t>>, std::shared_ptr<Plan>> services_;
};

}  // namespace moetune
