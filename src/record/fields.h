// Rows for spreadsheets: every command has the same columns for the same thing. Units stand in the column's name.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "record/measurement.h"
#include "workload/problem.h"

namespace moetune {

/// Column and value, in the order of the columns. Every row of a file has the same columns; what a row has no value for
/// is empty.
using Fields = std::vector<std::pair<std::string, std::string>>;

/// `digits` significant digits; nothing for NaN and infinities.
std::string number_field(double value, int digits = 6);
std::string boolean_field(bool value);

void add_cell(Fields& fields, const Cell& cell);
void add_figures(Fields& fields, const RoutingFigures& figures);

/// The variant, a column for each knob of any variant that is built in, and those of a pack's candidate. Null (and a
/// candidate of no variant): columns without values.
void add_candidate(Fields& fields, const Candidate* candidate);
void add_measurement(Fields& fields, const Measurement* measurement);
void add_verdict(Fields& fields, const Verdict* verdict);

/// RFC 4180 with line feeds at line ends. `columns` names them where there are no rows; its values don't matter.
std::string csv_text(const Fields& columns, const std::vector<Fields>& rows);

}  // namespace moetune
