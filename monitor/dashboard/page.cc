#include "brigade/monitor/dashboard/page.h"

#include "absl/strings/str_cat.h"

namespace brigade::monitor {
namespace {

constexpr absl::string_view kBody = R"html(
<header>
  <div class="line">
    <h1>Brigade</h1>
    <p id="title"></p>
    <span id="state" class="state" role="status">connecting</span>
  </div>
  <div class="line progress">
    <div class="track" role="progressbar" aria-label="steps" id="track"><i id="bar"></i></div>
    <span id="progress" class="number"></span>
  </div>
</header>
<main>
  <section id="tiles" class="tiles" aria-label="latest values"></section>
  <section id="charts" class="grid" aria-label="values over steps"></section>
  <section class="grid">
    <figure class="panel" id="memory">
      <figcaption>Memory by purpose <small>of rank 0</small></figcaption>
      <div class="content"></div>
    </figure>
    <figure class="panel" id="split">
      <figcaption>Time of a step <small></small></figcaption>
      <div class="content"></div>
    </figure>
    <figure class="panel wide" id="pipeline">
      <figcaption>Passes of the last step <small></small></figcaption>
      <div class="content"></div>
    </figure>
  </section>
  <noscript>This page needs its script.</noscript>
</main>
<div id="tip" role="tooltip" hidden></div>
)html";

}  // namespace

std::string Page() {
  return absl::StrCat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>Brigade</title>\n<link rel=\"icon\" href=\"data:,\">\n"
      "<style nonce=\"@NONCE@\">",
      PageStyle(), "</style>\n</head>\n<body>", kBody, "<script nonce=\"@NONCE@\">", PageCharts(),
      PageScript(), "</script>\n</body>\n</html>\n");
}

}  // namespace brigade::monitor
