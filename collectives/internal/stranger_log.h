#ifndef BRIGADE_COLLECTIVES_INTERNAL_STRANGER_LOG_H_
#define BRIGADE_COLLECTIVES_INTERNAL_STRANGER_LOG_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace brigade::collectives::internal {

// Of a port, connections that have not proved yet what they know; the oldest makes room for the
// next.
inline constexpr int kMostUnproved = 64;
// Where no descriptors are left, until one is looked for again.
inline constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);

// What standard error hears of those who connect to a port and are no ranks: who the first one was,
// and at the end how many they were. Of one thread.
class StrangerLog {
 public:
  explicit StrangerLog(int port) : port_(port) {}
  ~StrangerLog();
  StrangerLog(const StrangerLog&) = delete;
  StrangerLog& operator=(const StrangerLog&) = delete;

  void Refused(const std::string& address, absl::string_view why);
  // Says so the first time that nobody can be accepted, and again if somebody was meanwhile.
  void AcceptsNobody(absl::string_view why);
  void Accepts() { is_short_ = false; }

 private:
  const int port_;
  int64_t refused_ = 0;
  bool is_short_ = false;
};

}  // namespace brigade::collectives::internal

#endif  // BRIGADE_COLLECTIVES_INTERNAL_STRANGER_LOG_H_
