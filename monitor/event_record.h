#ifndef BRIGADE_MONITOR_EVENT_RECORD_H_
#define BRIGADE_MONITOR_EVENT_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "brigade/monitor/record.h"

// The records of TensorBoard's event files, without its libraries: protocol buffers of
// tensorflow/core/util/event.proto and framework/summary.proto in the frame of
// tensorflow/core/lib/io/record_writer.cc.
namespace brigade::monitor {

// `data` in a frame: its length as 8 bytes, their masked CRC-32C, the data, and its masked CRC-32C;
// all with the least byte first.
std::string Framed(absl::string_view data);

// (crc rotated right by 15) + a282ead8: CRCs of data that holds CRCs are none.
uint32_t MaskedCrc(absl::string_view bytes);

// Events, in no frame. The first of each file says what it is.
std::string VersionEvent(double wall_time);
// The values that have a tag, as floats. An empty string if there are none.
std::string ScalarsEvent(double wall_time, int64_t step, const std::vector<Value>& values);
// A training begins here, or goes on: readers drop what files before this one have from `step` on.
std::string StartEvent(double wall_time, int64_t step);

}  // namespace brigade::monitor

#endif  // BRIGADE_MONITOR_EVENT_RECORD_H_
