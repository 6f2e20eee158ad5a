// What a tuning run would do, without doing it: `tune --dry-run`.
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "cli/output.h"
#include "tune/tuner.h"
#include "variant/offer.h"

namespace moetune {

struct Plan {
  struct Item {
    Cell cell;
    RoutingFigures figures;
    int64_t total = 0, legal = 0;
    std::map<std::string, int64_t> pruned;
    double flops = 0;      // of the problem
    int64_t trials = 0;    // that are left to do
    double seconds = 0;    // that the cell takes, about
    bool guessed = false;  // by figures of the kind of device
  };
  DeviceInfo device;
  std::vector<Item> items;
  std::filesystem::path output, journal;
  double seconds = 0;  // that the run takes, about
};

/// `seed` is that of the run, by which the offer draws.
Plan make_plan(const std::vector<Cell>& cells, Offer& offer, const DeviceInfo& device, uint64_t seed);

/// Fills in trials and seconds. `devices` share the cells. The journal that is there tells how long trials take, where
/// it is of this model of device and of this regime; with `resume`, its trials are not done again.
void estimate(Plan& plan, const TuneRequest& request, size_t devices, bool resume);

Json plan_json(const Plan& plan, const Json& tool);  // moetune.plan/1
/// A row a cell: the cell, its figures, counts of candidates, and why most of those pruned are.
std::string csv(const Plan& plan);
/// Cells, then pruned reasons with their counts, then the files. Fits `columns`, as `fitted` does.
std::string markdown(const Plan& plan, int columns = 0);

}  // namespace moetune
