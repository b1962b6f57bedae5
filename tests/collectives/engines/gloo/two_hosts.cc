#include "brigade/tests/collectives/engines/gloo/two_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace brigade::collectives::testing {

int Shell(const std::string& command) {
  // Where ip and tc are, also for those who have a user's path.
  const int status = std::system(absl::StrCat("PATH=$PATH:/usr/sbin:/sbin; ", command).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TwoHosts::~TwoHosts() {
  if (home_ >= 0) setns(home_, CLONE_NEWNET);
  for (const int fd : {home_, hosts_[0], hosts_[1]}) {
    if (fd >= 0) close(fd);
  }
}

std::string TwoHosts::Create(int megabits_per_s, int packet_bytes) {
  if (Shell("command -v ip >/dev/null") != 0) return "there is no `ip`; install iproute2";
  home_ = open("/proc/self/ns/net", O_RDONLY);
  for (int& host : hosts_) {
    if (home_ < 0 || unshare(CLONE_NEWNET) != 0) {
      return absl::StrCat("no network namespaces: ", std::strerror(errno));
    }
    host = open("/proc/self/ns/net", O_RDONLY);
  }
  Enter(0);
  if (Shell(absl::StrCat("ip link add ", kDevice[0], " type veth peer name ", kDevice[1])) != 0 ||
      Shell(absl::StrCat("ip link set ", kDevice[1], " netns /proc/", getpid(), "/fd/",
                         hosts_[1])) != 0) {
    return "no veth pair between network namespaces";
  }
  for (int host = 0; host < 2; ++host) {
    Enter(host);
    if (Shell("ip link set lo up") != 0 ||
        Shell(absl::StrCat("ip address add ", kAddress[host], "/24 dev ", kDevice[host])) != 0 ||
        Shell(absl::StrCat("ip link set ", kDevice[host], " mtu ", packet_bytes, " up")) != 0) {
      return "a network namespace cannot be configured";
    }
    // Packets that leave on one core and then on another can overtake each other, and TCP takes
    // them for lost: they are received on one. Where the kernel or the system cannot do that, the
    // link is only less steady.
    Shell(absl::StrCat("unshare -m sh -c 'mount -t sysfs none /sys && echo 1 >/sys/class/net/",
                       kDevice[host], "/queues/rx-0/rps_cpus' 2>/dev/null"));
    // Losses alone slow it, and here are none. BBR and cubic also heed delays, and take
    // acknowledgements that queue behind data of the other direction for a slower link.
    Shell("echo reno >/proc/sys/net/ipv4/tcp_congestion_control");
    const int bucket = packet_bytes + 24;  // a frame
    slow_ = Shell(absl::StrCat("tc qdisc add dev ", kDevice[host], " root tbf rate ",
                               megabits_per_s, "mbit burst ", bucket, " latency 400ms")) == 0;
  }
  setns(home_, CLONE_NEWNET);
  return "";
}

void TwoHosts::Enter(int host) const { setns(hosts_[host], CLONE_NEWNET); }

int64_t TwoHosts::SentBytes(int host) const {
  Enter(host);
  int64_t bytes = -1;
  std::ifstream devices("/proc/thread-self/net/dev");
  for (std::string line; std::getline(devices, line);) {
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(": "), absl::SkipEmpty());
    if (words.size() > 9 && words[0] == kDevice[host]) bytes = std::stoll(words[9]);
  }
  setns(home_, CLONE_NEWNET);
  return bytes;
}

}  // namespace brigade::collectives::testing
