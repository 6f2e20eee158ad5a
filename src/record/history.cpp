// Lines of a history, and levels of its series.
#include "record/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/system/file.h"
#include "base/text/units.h"

namespace moetune {
namespace {

constexpr double kLeastNoise = 1e-3;  // of a run, in the logarithm: clocks and timers are no better

Json to_json(const HistoryPoint& point) {
  Json json = {{"name", point.name}, {"finding", point.finding}};
  json["median_us"] = rounded(point.time.value * 1e6);
  json["low_us"] = rounded(point.time.low * 1e6), json["high_us"] = rounded(point.time.high * 1e6);
  if (!point.control.empty())
    json["control"] = point.control, json["control_us"] = rounded(point.control_seconds * 1e6);
  return json;
}

HistoryPoint point_from_json(const JsonAt& json) {
  const auto seconds = [&](const char* key) { return json[key].number() * 1e-6; };
  HistoryPoint point{.name = json["name"].string(),
                     .finding = json["finding"].string(),
                     .time = {seconds("median_us"), seconds("low_us"), seconds("high_us")}};
  if (json.has("control")) point.control = json["control"].string(), point.control_seconds = seconds("control_us");
  return point;
}

HistoryRun run_from_json(const JsonAt& json) {
  require_schema(json, "history");
  return {.date = json["date"].string(),
          .commit = json.has("commit") ? json["commit"].string() : "",
          .device = json["device"].string(),
          .regime = json["regime"].string(),
          .points = list_at(json["points"], point_from_json)};
}

void scale_by_control(HistorySeries& series, const std::vector<const HistoryPoint*>& points) {
  std::vector<double> controls;
  for (const HistoryPoint* point : points) {
    if (point->control_seconds <= 0 || point->control != points[0]->control) return;
    controls.push_back(point->control_seconds);
  }
  const double typical = median(controls);
  for (size_t i = 0; i < points.size(); ++i) series.times[i] = typical / controls[i] * series.times[i];
}

void find_levels(HistorySeries& series) {
  std::vector<double> logs, noises;
  for (const Estimate& time : series.times) {
    logs.push_back(std::log(time.value));
    noises.push_back(log_half_width(time) / 2);
  }
  const double noise = noise_of(logs, std::max(kLeastNoise, median(noises)));
  std::vector<size_t> ends = change_points(logs, noise);
  ends.push_back(logs.size());
  size_t first = 0;
  for (const size_t end : ends) {
    const double middle = median(std::span(logs).subspan(first, end - first));
    series.levels.push_back(
        {first, {std::exp(middle), std::exp(middle - 2 * noise), std::exp(middle + 2 * noise), int(end - first)}});
    first = end;
  }
}

// Without a last line that was cut off, such as on a full disk.
std::string whole_lines(std::string text) {
  const size_t last = text.rfind('\n') + 1;
  if (!Json::accept(text.substr(last))) text.erase(last);
  return text;
}

}  // namespace

History read_history(const std::string& file) {
  History history;
  const std::vector<std::string> lines = split(whole_lines(read_text(file)), '\n');
  for (size_t i = 0; i < lines.size(); ++i) try {
      if (lines[i].empty()) continue;
      const Where place(file, i + 1);
      const Json json = parse_json(lines[i], place);
      history.runs.push_back(run_from_json(JsonAt(json, place)));
    } catch (const Error& error) {
      history.damaged.push_back(error);
    }
  if (history.runs.empty() && !history.damaged.empty()) throw history.damaged[0];
  return history;
}

void append_history(const std::string& file, const HistoryRun& run) {
  std::string text = is_there(file) ? whole_lines(read_text(file)) : "";
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  Json json = {{"schema", "moetune.history/1"}, {"date", run.date}};
  if (!run.commit.empty()) json["commit"] = run.commit;
  json["device"] = run.device, json["regime"] = run.regime;
  json["points"] = json_list(run.points, [](const HistoryPoint& point) { return to_json(point); });
  write_atomic(file, text + json.dump() + "\n");
}

std::vector<HistorySeries> series_of(const std::vector<HistoryRun>& runs) {
  std::vector<HistorySeries> all;
  std::vector<std::vector<const HistoryPoint*>> points;
  std::map<std::string_view, size_t> places;  // in both
  for (const HistoryRun& run : runs) {
    if (run.device != runs.back().device || run.regime != runs.back().regime) continue;
    for (const HistoryPoint& point : run.points) {
      if (point.finding == "untrusted" || !(point.time.low > 0)) continue;
      const auto [place, fresh] = places.try_emplace(point.name, all.size());
      const size_t at = place->second;
      if (fresh) all.push_back({.name = point.name}), points.emplace_back();
      all[at].times.push_back(point.time), all[at].runs.push_back(&run), points[at].push_back(&point);
    }
  }
  for (size_t i = 0; i < all.size(); ++i) scale_by_control(all[i], points[i]), find_levels(all[i]);
  return all;
}

std::string change_text(const HistorySeries& series, size_t level) {
  const HistoryLevel &now = series.levels[level], &before = series.levels[level - 1];
  const HistoryRun& run = *series.runs[now.first];
  return fmt::format("{:+.1f} % since {}{}", 100 * (now.time.value / before.time.value - 1), run.date,
                     run.commit.empty() ? "" : ", commit " + run.commit);
}

}  // namespace moetune
