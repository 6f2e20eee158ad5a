// What changed of a cell since its table was made: the winner's ratios to its rivals, and its time. Judges nothing.
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

/// An entry's winner and the rivals that it meets again.
struct Bout {
  const Entry* entry = nullptr;
  std::vector<Contender> contenders;  // the winner first, then the rivals
  std::vector<const Rival*> rivals;   // the control last
  const Rival& control() const { return *rivals.back(); }
};

/// The winner beside its default, the first baseline of the table and its control, as far as they are `offered`.
/// Nothing where no control is.
std::optional<Bout> set_up(const Entry& entry, const std::vector<std::string>& offered);

/// Of the winner's ratio to a rival, by its place in the bout, and to the control.
Change change_against(const Rounds& rounds, const Bout& bout, size_t rival);
Change change_of_ratio(const Rounds& rounds, const Bout& bout);

/// Of the winner's time, and the part of that which a slower machine does not explain: the control's own time is not
/// longer by as much.
Change change_of_time(const Rounds& rounds, const Bout& bout);
Change excess_of_time(const Rounds& rounds, const Bout& bout);

/// How many times as long the control takes as in the table.
double control_moved(const Rounds& rounds, const Bout& bout);

}  // namespace moetune
