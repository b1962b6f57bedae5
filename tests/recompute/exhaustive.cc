#include "brigade/tests/recompute/exhaustive.h"

#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <utility>
#include <vector>

namespace brigade::recompute {
namespace {

constexpr size_t kMost = 8;

struct State {
  // The stage whose backward pass is next; -1 at the end.
  int backward = 0;
  // The stage whose output passes, or -1.
  int passing = -1;
  // Whether the input of a stage is kept.
  std::array<bool, kMost> kept = {};
  // The option that a stage has saved, or -1.
  std::array<int, kMost> saved = {};

  auto operator<=>(const State&) const = default;
};

class Search {
 public:
  Search(const Chain& chain, int64_t budget) : chain_(chain), budget_(budget) {}

  double Run() {
    State start = {.backward = static_cast<int>(chain_.stages.size()) - 1};
    start.saved.fill(-1);
    Reach(start, 0);
    while (!queue_.empty()) {
      const auto [time, state] = queue_.top();
      queue_.pop();
      if (state.backward < 0) return time;
      if (time == times_.at(state)) Expand(state, time);
    }
    return std::numeric_limits<double>::infinity();
  }

 private:
  const Stage& stage(int s) const { return chain_.stages[static_cast<size_t>(s)]; }

  static bool HasInput(const State& state, int s) {
    const auto i = static_cast<size_t>(s);
    return s == 0 || state.kept[i] || state.saved[i - 1] >= 0;
  }

  // Whether this much more than what the state holds is within the budget.
  bool Fits(const State& state, int64_t bytes) const {
    if (state.passing >= 0) bytes += stage(state.passing).output_bytes;
    if (state.backward >= 0) bytes += stage(state.backward).gradient_bytes;
    for (size_t s = 0; s < chain_.stages.size(); ++s) {
      if (state.kept[s]) bytes += chain_.stages[s - 1].output_bytes;
      if (state.saved[s] < 0) continue;
      bytes += chain_.stages[s].options[static_cast<size_t>(state.saved[s])].saved_bytes;
    }
    return bytes <= budget_;
  }

  void Reach(const State& state, double time) {
    const auto [found, is_new] = times_.try_emplace(state, time);
    if (!is_new && found->second <= time) return;
    found->second = time;
    queue_.push({time, state});
  }

  void Expand(const State& state, double time) {
    if (state.passing >= 0) return Forward(state, state.passing + 1, time);
    for (int s = 0; s <= state.backward; ++s) {
      if (!HasInput(state, s)) continue;
      Forward(state, s, time);
      Save(state, s, time);
    }
    Backward(state, time);
  }

  void Forward(const State& state, int s, double time) {
    // Not the last output, which nobody reads, nor one that is there.
    if (s >= state.backward || HasInput(state, s + 1)) return;
    if (!Fits(state, stage(s).output_bytes + stage(s).transient_bytes)) return;
    State next = state;
    next.passing = s;
    Reach(next, time + stage(s).forward_time);
    next.passing = -1;
    next.kept[static_cast<size_t>(s) + 1] = true;
    Reach(next, time + stage(s).forward_time);
  }

  void Save(const State& state, int s, double time) {
    if (state.saved[static_cast<size_t>(s)] >= 0) return;
    for (size_t o = 0; o < stage(s).options.size(); ++o) {
      const SaveOption& option = stage(s).options[o];
      if (!Fits(state, option.saved_bytes + option.forward_transient_bytes)) continue;
      State next = state;
      next.saved[static_cast<size_t>(s)] = static_cast<int>(o);
      Reach(next, time + stage(s).forward_time);
    }
  }

  void Backward(const State& state, double time) {
    const int s = state.backward;
    const int saved = state.saved[static_cast<size_t>(s)];
    if (saved < 0 || !HasInput(state, s)) return;
    const SaveOption& option = stage(s).options[static_cast<size_t>(saved)];
    if (!Fits(state, option.backward_transient_bytes)) return;
    State next = state;
    next.backward = s - 1;
    next.saved[static_cast<size_t>(s)] = -1;
    next.kept[static_cast<size_t>(s)] = false;
    Reach(next, time + option.backward_time);
  }

  const Chain& chain_;
  const int64_t budget_;
  std::map<State, double> times_;
  std::priority_queue<std::pair<double, State>, std::vector<std::pair<double, State>>,
                      std::greater<>>
      queue_;
};

}  // namespace

double ExhaustiveTime(const Chain& chain, int64_t budget_bytes) {
  return Search(chain, budget_bytes).Run();
}

}  // namespace brigade::recompute
