#ifndef BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_TWO_HOSTS_H_
#define BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_TWO_HOSTS_H_

#include <array>
#include <cstdint>
#include <string>

namespace brigade::collectives::testing {

// Runs a command where ip and tc are found; its exit status.
int Shell(const std::string& command);

// Two network namespaces with a link between them, which tc makes slow. They have no names: the
// kernel takes them down, and the link with them, when no process is left that holds them, however
// this one ends. Needs root.
class TwoHosts {
 public:
  static constexpr const char* kDevice[2] = {"brigade0", "brigade1"};
  static constexpr const char* kAddress[2] = {"10.77.0.1", "10.77.0.2"};

  ~TwoHosts();

  // A link of so many megabits per second, for IP packets of at most `packet_bytes`. After a pause
  // one packet is free, so small ones let small messages cost their bytes. Why there is none, or
  // "".
  std::string Create(int megabits_per_s, int packet_bytes = 1500);

  // Moves this thread, and what it starts.
  void Enter(int host) const;

  // Whether there is tc to slow the link.
  bool slow() const { return slow_; }

  // What a host has sent on the link, headers and all.
  int64_t SentBytes(int host) const;

 private:
  int home_ = -1;
  std::array<int, 2> hosts_ = {-1, -1};
  bool slow_ = false;
};

}  // namespace brigade::collectives::testing

#endif  // BRIGADE_TESTS_COLLECTIVES_ENGINES_GLOO_TWO_HOSTS_H_
