// A value of a training that goes to a file of JSON lines, and is there.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "brigade/monitor/json_lines.h"
#include "brigade/monitor/monitor.h"

int main() {
  namespace monitor = brigade::monitor;
  char folder[] = "/tmp/brigade_consumer_XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const std::string path = std::string(folder) + "/metrics";
  auto lines = monitor::JsonLines::Create(path);
  if (!lines.ok()) return 1;
  std::vector<std::unique_ptr<monitor::BackEnd>> back_ends;
  back_ends.push_back(*std::move(lines));
  monitor::Monitor values(std::move(back_ends));
  values.Start({.step = 0});
  values.Publish(monitor::Record{.at = {1, 16}, .values = {{"Train/loss", 5.5, "loss"}}});
  const auto reports = values.Close(absl::Seconds(60));
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  std::remove(path.c_str());
  rmdir(folder);
  std::printf("%s%s\n", text.c_str(), reports[0].Trouble().c_str());
  return reports[0].written == 1 && text.find("\"loss\":5.5") != std::string::npos ? 0 : 1;
}
