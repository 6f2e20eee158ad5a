// How a cell changed since its table was made: the winner's ratios to its rivals, and its time. The verdict is
// judge.h's.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "table/table.h"
#include "tune/rounds.h"

namespace moetune {

/// The logarithm of a change, with half its 95 % interval.
struct Change {
  double middle = 0, half = 0;
  double low() const { return middle - half; }
  double high() const { return middle + half; }
};

/// "+8.0 %" of a change's logarithm, and "+8.0 % (+7.0 % to +9.0 %)".
std::string percent(double log_change);
std::string text(const Change& change);

/// An entry's winner and the rivals that it is measured beside again.
struct Bout {
  const Entry* entry = nullptr;
  std::vector<Contender> contenders;  // the winner first, then the rivals
  std::vector<const Rival*> rivals;   // the control last
  const Rival& control() const { return *rivals.back(); }
};

/// The winner, its default, the first baseline of the table and its control; baselines only where the backend has
/// `offered` them. Nothing where no control is left.
std::optional<Bout> set_up(const Entry& entry, const std::vector<std::string>& offered);

/// The change of the winner's ratio to rivals[rival], and of its ratio to the control.
Change change_against(const Rounds& rounds, const Bout& bout, size_t rival);
Change change_of_ratio(const Rounds& rounds, const Bout& bout);

/// The change of the winner's time; and the part of it that exceeds the change of the control's time.
Change change_of_time(const Rounds& rounds, const Bout& bout);
Change excess_of_time(const Rounds& rounds, const Bout& bout);

/// How many times as long the control takes as in the table.
double control_moved(const Rounds& rounds, const Bout& bout);

}  // namespace moetune
