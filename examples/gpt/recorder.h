#ifndef BRIGADE_EXAMPLES_GPT_RECORDER_H_
#define BRIGADE_EXAMPLES_GPT_RECORDER_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "brigade/device/tracer.h"
#include "brigade/examples/gpt/chrome_trace.h"
#include "brigade/examples/gpt/time_split.h"

namespace brigade::gpt {

// Follows what the streams of this process's ranks do: for the report, and into a trace file.
//
// Threads      Begin and End by each rank's thread; a thread of its own empties the tracer.
class Recorder {
 public:
  // `trace` may be null.
  explicit Recorder(ChromeTrace* trace);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  device::Tracer& tracer() { return tracer_; }

  // The time of the context of this name counts from here on. Its streams exist.
  void Begin(const std::string& context);
  // To here. Its streams are idle.
  Seconds End(const std::string& context);

  // Ends the trace file; what went wrong with it, if anything.
  absl::Status Finish();

 private:
  struct Rank {
    std::map<std::string, int> streams;
    std::unique_ptr<TimeSplit> split;
  };

  void Loop();
  void Empty();  // mutex_ held

  device::Tracer tracer_;
  std::mutex mutex_;
  std::condition_variable closing_changed_;
  bool closing_ = false;
  ChromeTrace* trace_;
  absl::Status status_;
  std::map<std::string, Rank> ranks_;
  std::thread thread_;
};

}  // namespace brigade::gpt

#endif  // BRIGADE_EXAMPLES_GPT_RECORDER_H_
