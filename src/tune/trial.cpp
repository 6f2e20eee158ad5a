// Faults of the candidate become data, those of the machine throw.
#include "tune/trial.h"

#include <algorithm>

#include "base/error.h"
#include "tune/stopping.h"

namespace moetune {
namespace {

void sample_more(Backend& backend, const Contender& contender, SampleRequest request, int blocks,
                 std::vector<Block>& to) {
  request.blocks = blocks;
  const std::vector<Block> more = backend.sample(contender, request);
  if (more.empty()) throw Error(Exit::bug, "a sample came back without a block");
  to.insert(to.end(), more.begin(), more.end());
}

std::vector<Block> measure(Backend& backend, const Candidate& candidate, const SampleRequest& request,
                           std::optional<double> best) {
  const Contender contender{.candidate = candidate};
  const int wanted = std::max(request.blocks, 1);
  std::vector<Block> blocks;
  const StopWhenHopeless hopeless;
  bool far = best.has_value();
  for (int i = 0; far && i < std::min(wanted, static_cast<int>(hopeless.samples)); ++i) {
    sample_more(backend, contender, request, 1, blocks);
    far = hopeless.is_far(blocks.back().seconds, *best);
  }
  if (const int left = wanted - static_cast<int>(blocks.size()); left > 0 && !far)
    sample_more(backend, contender, request, left, blocks);
  return blocks;
}

template <class Action>
void blame_candidate(Trial& trial, const Action& action) {
  try {
    action();
  } catch (const CandidateFault& fault) {
    trial.status = fault.status;
    trial.reason = fault.what();
  }
}

}  // namespace

Trial try_compiled(Backend& backend, const Candidate& candidate, const CompileResult& compile,
                   const SampleRequest& request, std::optional<double> best) {
  Trial trial{.candidate = candidate, .status = compile.status, .reason = compile.reason, .compile = compile};
  if (trial.status != Status::ok) return trial;
  blame_candidate(trial, [&] {
    trial.verdict = backend.verify({.candidate = candidate});
    if (!trial.verdict.ok) {
      trial.status = Status::wrong_result;
      trial.reason = trial.verdict.reason;
      return;
    }
    trial.blocks = measure(backend, candidate, request, best);
    trial.measurement = summarise(trial.blocks);
  });
  return trial;
}

Trial measure_more(Backend& backend, Trial trial, const SampleRequest& request) {
  blame_candidate(trial, [&] {
    sample_more(backend, {.candidate = trial.candidate}, request, request.blocks, trial.blocks);
    trial.measurement = summarise(trial.blocks);
  });
  return trial;
}

}  // namespace moetune
