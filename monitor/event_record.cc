#include "brigade/monitor/event_record.h"

#include <bit>
#include <cmath>
#include <limits>

#include "brigade/device/file/crc32c.h"

namespace brigade::monitor {
namespace {

// Of a field: its number and its wire type.
enum WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// The fields of Event.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
// Of Summary and of Summary.Value.
constexpr int kValue = 1, kTag = 1, kSimpleValue = 2;
// Of SessionLog, and what it says.
constexpr int kStatus = 1;
constexpr uint64_t kStarted = 1;

template <typename T>
void AppendLittleEndian(T bits, std::string& to) {
  for (size_t byte = 0; byte < sizeof(T); ++byte) {
    to += static_cast<char>(static_cast<unsigned char>(bits >> (8 * byte)));
  }
}

void AppendVarint(uint64_t bits, std::string& to) {
  for (; bits >= 0x80; bits >>= 7) to += static_cast<char>((bits & 0x7f) | 0x80);
  to += static_cast<char>(bits);
}

void AppendKey(int field, WireType type, std::string& to) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | type, to);
}

void AppendBytes(int field, absl::string_view bytes, std::string& to) {
  AppendKey(field, kBytes, to);
  AppendVarint(bytes.size(), to);
  to.append(bytes.data(), bytes.size());
}

// Numbers that are zero are left out, as protocol buffers do.
std::string EventAt(double wall_time, int64_t step) {
  std::string event;
  if (const auto bits = std::bit_cast<uint64_t>(wall_time); bits != 0) {
    AppendKey(kWallTime, kFixed64, event);
    AppendLittleEndian(bits, event);
  }
  if (step != 0) {
    AppendKey(kStep, kVarint, event);
    AppendVarint(static_cast<uint64_t>(step), event);
  }
  return event;
}

// C++ does not say what becomes of a double beyond the floats.
float AsFloat(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  if (std::abs(value) > kMost) {
    return std::copysign(std::numeric_limits<float>::infinity(), value > 0 ? 1.0f : -1.0f);
  }
  return static_cast<float>(value);
}

}  // namespace

uint32_t MaskedCrc(absl::string_view bytes) {
  return std::rotr(device::Crc32c(bytes), 15) + 0xa282ead8u;
}

std::string Framed(absl::string_view data) {
  std::string record;
  AppendLittleEndian(static_cast<uint64_t>(data.size()), record);
  AppendLittleEndian(MaskedCrc(record), record);
  record.append(data.data(), data.size());
  AppendLittleEndian(MaskedCrc(data), record);
  return record;
}

std::string VersionEvent(double wall_time) {
  std::string event = EventAt(wall_time, 0);
  AppendBytes(kFileVersion, "brain.Event:2", event);
  return event;
}

std::string ScalarsEvent(double wall_time, int64_t step, const std::vector<Value>& values) {
  std::string summary;
  for (const Value& value : values) {
    if (value.tag.empty()) continue;
    std::string one;
    AppendBytes(kTag, value.tag, one);
    // Zero too: it is one of several things that a value may hold, and says which.
    AppendKey(kSimpleValue, kFixed32, one);
    AppendLittleEndian(std::bit_cast<uint32_t>(AsFloat(value.value)), one);
    AppendBytes(kValue, one, summary);
  }
  if (summary.empty()) return "";
  std::string event = EventAt(wall_time, step);
  AppendBytes(kSummary, summary, event);
  return event;
}

std::string StartEvent(double wall_time, int64_t step) {
  std::string log;
  AppendKey(kStatus, kVarint, log);
  AppendVarint(kStarted, log);
  std::string event = EventAt(wall_time, step);
  AppendBytes(kSessionLog, log, event);
  return event;
}

}  // namespace brigade::monitor
