#include "brigade/launch/hosts.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"

namespace brigade::launch {
namespace {

using ::brigade::device::Quoted;

template <typename... Words>
absl::Status Invalid(const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat(words...));
}

// Digits alone: SimpleAtoi takes signs and blanks as well.
bool ReadNumber(absl::string_view text, int* number) {
  const auto is_digit = [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); };
  return std::all_of(text.begin(), text.end(), is_digit) && absl::SimpleAtoi(text, number);
}

// A name goes into command lines of ssh and others, where "-" begins an option.
bool IsHostName(absl::string_view name) {
  const auto may_be_in_one = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
  };
  return !name.empty() && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), may_be_in_one);
}

absl::StatusOr<Host> HostFromLine(absl::string_view line) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
  Host host = {std::string(words[0]), {}};
  if (!IsHostName(words[0])) {
    return Invalid(
        Quoted(words[0]),
        " is no name of a host: letters, digits, \".\", \"-\" and \"_\", and no \"-\" in "
        "front");
  }
  if (words.size() == 1) return Invalid("there is no slots=N behind ", host.name);
  absl::string_view number = words[1];
  int slots = 0;
  if (!absl::ConsumePrefix(&number, "slots=") || !ReadNumber(number, &slots) || slots < 1 ||
      slots > kMostSlots) {
    return Invalid(Quoted(words[1]), " is not slots=N, with N from 1 to ", kMostSlots);
  }
  if (words.size() > 2) return Invalid(Quoted(words[2]), " follows ", words[1]);
  host.slots.resize(static_cast<size_t>(slots));
  std::iota(host.slots.begin(), host.slots.end(), 0);
  return host;
}

// What a NODE says: a host, and slots of it.
struct Node {
  const Host* host = nullptr;
  std::set<int> slots;
};

absl::StatusOr<Node> NodeOf(const std::vector<Host>& hosts, absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  Node node;
  for (const Host& host : hosts) {
    if (host.name == parts[0]) node.host = &host;
  }
  if (node.host == nullptr) {
    std::string names;
    for (const Host& host : hosts) absl::StrAppend(&names, names.empty() ? "" : ", ", host.name);
    return Invalid("there is no host ", Quoted(parts[0]), "; there are ",
                   device::Printable(names, 300));
  }
  const std::set<int> all(node.host->slots.begin(), node.host->slots.end());
  if (parts.size() == 1) {
    node.slots = all;
    return node;
  }
  for (const absl::string_view word : absl::StrSplit(parts[1], ',')) {
    int slot = 0;
    if (word.empty() || !ReadNumber(word, &slot)) {
      return Invalid(Quoted(word), " is no slot of ", node.host->name, ": a number is needed");
    }
    if (all.count(slot) == 0) {
      return Invalid(node.host->name, " has no slot ", slot, ", but ", all.size(), " of them from ",
                     *all.begin(), " to ", *all.rbegin());
    }
    node.slots.insert(slot);
  }
  return node;
}

}  // namespace

absl::StatusOr<std::vector<Host>> HostsFromText(absl::string_view text, absl::string_view file) {
  std::vector<Host> hosts;
  std::set<std::string> names;
  int number = 0;
  size_t ranks = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view content =
        absl::StripAsciiWhitespace(line.substr(0, std::min(line.find('#'), line.size())));
    if (content.empty()) continue;
    absl::StatusOr<Host> host = HostFromLine(content);
    if (host.ok() && !names.insert(host->name).second) {
      host = Invalid(host->name, " has been there before");
    }
    if (host.ok() && (ranks += host->slots.size()) > kMostRanks) {
      host = Invalid("there are more than ", kMostRanks, " slots");
    }
    if (!host.ok()) {
      return Invalid("hostfile ", device::Printable(file, 300), ", line ", number, ": ",
                     host.status().message());
    }
    hosts.push_back(*std::move(host));
  }
  if (hosts.empty()) return Invalid("hostfile ", device::Printable(file, 300), " has no host");
  return hosts;
}

absl::StatusOr<std::vector<Host>> HostsFromList(absl::string_view text) {
  std::vector<Host> hosts;
  std::set<std::string> names;
  for (const absl::string_view word : absl::StrSplit(text, '@')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(word, absl::MaxSplits(':', 1));
    Host host = {std::string(parts[0]), {}};
    std::set<int> slots;
    for (const absl::string_view each : absl::StrSplit(parts.size() > 1 ? parts[1] : "0", ',')) {
      int slot = 0;
      if (each.empty() || !ReadNumber(each, &slot) || slot >= kMostSlots) {
        return Invalid(Quoted(word), " is not HOST[:SLOT,...]");
      }
      slots.insert(slot);
    }
    if (!IsHostName(parts[0]) || !names.insert(host.name).second) {
      return Invalid(Quoted(word), " is not HOST[:SLOT,...] with a host that was not there before");
    }
    host.slots.assign(slots.begin(), slots.end());
    hosts.push_back(std::move(host));
  }
  return hosts;
}

absl::StatusOr<std::vector<Host>> Filter(const std::vector<Host>& hosts, Choice choice,
                                         absl::string_view text) {
  const absl::string_view flag = choice == Choice::kInclude ? "--include" : "--exclude";
  std::vector<std::set<int>> named(hosts.size());
  for (const absl::string_view word : absl::StrSplit(text, '@')) {
    const absl::StatusOr<Node> node = NodeOf(hosts, word);
    if (!node.ok()) {
      return Invalid(flag, "=", device::Printable(text, 300), ": ", node.status().message());
    }
    named[static_cast<size_t>(node->host - hosts.data())].insert(node->slots.begin(),
                                                                 node->slots.end());
  }
  std::vector<Host> left;
  for (size_t h = 0; h < hosts.size(); ++h) {
    Host host = {hosts[h].name, {}};
    for (const int slot : hosts[h].slots) {
      const bool is_named = named[h].count(slot) > 0;
      if (is_named == (choice == Choice::kInclude)) host.slots.push_back(slot);
    }
    if (!host.slots.empty()) left.push_back(std::move(host));
  }
  if (left.empty()) return Invalid(flag, "=", device::Printable(text, 300), " leaves no slot");
  return left;
}

absl::StatusOr<std::vector<Host>> FirstOf(const std::vector<Host>& hosts, int nodes, int slots) {
  if (nodes > static_cast<int>(hosts.size())) {
    return Invalid("--num_nodes is ", nodes, ", and there are ", hosts.size(), " hosts");
  }
  std::vector<Host> first(hosts.begin(), nodes == 0 ? hosts.end() : hosts.begin() + nodes);
  for (Host& host : first) {
    if (slots > static_cast<int>(host.slots.size())) {
      return Invalid("--num_gpus is ", slots, ", and ", host.name, " has ", host.slots.size(),
                     " slots");
    }
    if (slots > 0) host.slots.resize(static_cast<size_t>(slots));
  }
  return first;
}

}  // namespace brigade::launch
