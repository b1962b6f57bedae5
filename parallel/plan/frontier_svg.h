#ifndef BRIGADE_PARALLEL_PLAN_FRONTIER_SVG_H_
#define BRIGADE_PARALLEL_PLAN_FRONTIER_SVG_H_

#include <string>

#include "absl/strings/string_view.h"
#include "brigade/parallel/plan/search.h"

namespace brigade::parallel {

// A picture of a search, as SVG: time over memory of its candidates, those of the frontier as a
// line of steps with the configurations of some, and a line where memory ends, if that is finite.
// Many candidates are thinned out: a dot stands for all of its place. The same bytes for the same
// result.
std::string FrontierSvg(const SearchResult& result, double memory_bytes, absl::string_view title);

}  // namespace brigade::parallel

#endif  // BRIGADE_PARALLEL_PLAN_FRONTIER_SVG_H_
