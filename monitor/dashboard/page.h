#ifndef BRIGADE_MONITOR_DASHBOARD_PAGE_H_
#define BRIGADE_MONITOR_DASHBOARD_PAGE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace brigade::monitor {

// The page: HTML with style (page_style.cc) and scripts (page_charts.cc, page_script.cc) inside. In
// place of "@NONCE@" comes what the head of the response allows to run.
std::string Page();

absl::string_view PageStyle();
absl::string_view PageCharts();
absl::string_view PageScript();

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_DASHBOARD_PAGE_H_
