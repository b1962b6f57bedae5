#include "brigade/parallel/pipeline/check.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "brigade/parallel/pipeline/schedule.h"
#include "brigade/tests/parallel/pipeline/peaks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::parallel {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

PipelineShape Shape(const std::string& name, int stages, int micro_batches) {
  return {*ParseSchedule(name), stages, micro_batches};
}

PipelineSchedule Create(const std::string& name, int stages, int micro_batches) {
  return *CreateSchedule(Shape(name, stages, micro_batches));
}

// The item of this text on a stage's list.
StageList::iterator Find(PipelineSchedule& schedule, int stage, const std::string& text) {
  StageList& list = schedule.lists[static_cast<size_t>(stage)];
  const auto found = std::find_if(list.begin(), list.end(), [&](const PipelineItem& item) {
    return ToString(schedule, item) == text;
  });
  EXPECT_NE(found, list.end()) << text << " on stage " << stage;
  return found;
}

void Swap(PipelineSchedule& schedule, int stage, const std::string& a, const std::string& b) {
  std::swap(*Find(schedule, stage, a), *Find(schedule, stage, b));
}

void Erase(PipelineSchedule& schedule, int stage, const std::string& text) {
  schedule.lists[static_cast<size_t>(stage)].erase(Find(schedule, stage, text));
}

// Receives just before and sends just after the computations.
PipelineSchedule WithTransfersAroundComputations(const PipelineShape& shape) {
  PipelineSchedule schedule = *ComputationsOf(shape);
  for (int stage = 0; stage < shape.stages; ++stage) {
    StageList with_transfers;
    for (const PipelineItem& item : schedule.lists[static_cast<size_t>(stage)]) {
      const auto add = [&](ItemKind kind) {
        const PipelineItem transfer = {kind, item.chunk, item.micro_batch};
        if (PeerOf(shape, stage, transfer).has_value()) with_transfers.push_back(transfer);
      };
      const bool is_forward = item.kind == ItemKind::kForward;
      if (is_forward) add(ItemKind::kReceiveActivation);
      if (!is_forward) add(ItemKind::kReceiveGradient);
      with_transfers.push_back(item);
      if (is_forward) add(ItemKind::kSendActivation);
      if (!is_forward) add(ItemKind::kSendGradient);
    }
    schedule.lists[static_cast<size_t>(stage)] = with_transfers;
  }
  return schedule;
}

constexpr const char* kNames[] = {"gpipe",         "1f1b",  "interleaved:2",
                                  "interleaved:3", "zb-h1", "zb-v"};

TEST(CheckTest, AcceptsAllSchedules) {
  for (const char* const name : kNames) {
    for (int p = 1; p <= 8; ++p) {
      for (int m = 1; m <= 19; ++m) {
        const PipelineShape shape = Shape(name, p, m);
        if (!Validate(shape).ok()) continue;
        const PipelineSchedule schedule = *CreateSchedule(shape);
        const auto buffers = Check(schedule);
        ASSERT_TRUE(buffers.ok()) << name << " " << p << " " << m << buffers.status();
        const std::vector<int64_t> bytes(static_cast<size_t>(shape.parts()), 1);
        const std::vector<int64_t> peaks = PeakActivationBytes(schedule, bytes);
        for (int stage = 0; stage < p; ++stage) {
          const int64_t activations = (*buffers)[static_cast<size_t>(stage)].activations;
          EXPECT_EQ(activations, PeakActivations(shape, stage)) << name << " " << p << " " << m;
          EXPECT_EQ(activations, peaks[static_cast<size_t>(stage)]);
        }
      }
    }
  }
}

TEST(CheckTest, CountsTheBuffersOfEachSort) {
  // The first stage reads no activations, the last one no gradients.
  EXPECT_THAT(*Check(Create("1f1b", 2, 4)), ElementsAre(StageBuffers{.activations = 2,
                                                                     .inputs = 0,
                                                                     .outputs = 1,
                                                                     .output_gradients = 1,
                                                                     .input_gradients = 0},
                                                        StageBuffers{.activations = 1,
                                                                     .inputs = 2,
                                                                     .outputs = 0,
                                                                     .output_gradients = 0,
                                                                     .input_gradients = 1}));
  EXPECT_THAT(*Check(Create("gpipe", 1, 3)), ElementsAre(StageBuffers{.activations = 3}));
  // Gradients of outputs live until the gradients of the weights; where the V turns, chunk 1 reads
  // what chunk 0 has computed, and the other way round.
  EXPECT_THAT(*Check(Create("zb-h1", 2, 1)),
              ElementsAre(StageBuffers{1, 0, 1, 1, 0, 1}, StageBuffers{1, 1, 0, 0, 1, 1}));
  EXPECT_THAT(*Check(Create("zb-v", 1, 1)), ElementsAre(StageBuffers{2, 1, 0, 1, 0, 1}));
}

TEST(CheckTest, NamesTheItemsThatWaitForEachOther) {
  EXPECT_THAT(Check(WithTransfersAroundComputations(Shape("1f1b", 2, 2))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "pipeline: the lists wait for each other: >a1 on stage 0 for stage 1, >g0 "
                       "on stage 1 for stage 0"));
  EXPECT_OK(Check(WithTransfersAroundComputations(Shape("gpipe", 2, 2))));

  PipelineSchedule swapped = Create("gpipe", 2, 2);
  Swap(swapped, 1, "<a0", "<a1");
  // F0 has to stay behind its activation.
  std::rotate(Find(swapped, 1, "F0"), Find(swapped, 1, "F0") + 1, Find(swapped, 1, "<a0") + 1);
  EXPECT_THAT(Check(swapped), StatusIs(absl::StatusCode::kInvalidArgument,
                                       "pipeline: the lists wait for each other: >a0 on stage 0 "
                                       "for stage 1, <a1 on stage 1 for stage 0"));
}

TEST(CheckTest, ACollectiveIsOneNodeOfItsStages) {
  PipelineSchedule schedule = Create("1f1b", 3, 2);
  ASSERT_OK(AddCollective({"tied", {0, 2}}, schedule));
  ASSERT_OK(AddCollective({"norm", {0, 1, 2}}, schedule));
  EXPECT_OK(Check(schedule));

  PipelineSchedule early = schedule;
  const PipelineItem tied = early.lists[0][early.lists[0].size() - 2];
  std::erase(early.lists[2], tied);
  early.lists[2].insert(early.lists[2].begin(), tied);
  EXPECT_THAT(Check(early), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("tied on stage 2 for stage 0")));
  PipelineSchedule other_order = schedule;
  Swap(other_order, 2, "tied", "norm");
  EXPECT_THAT(Check(other_order),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "pipeline: the lists wait for each other: tied on stage 0 for stage 2, norm "
                       "on stage 2 for stage 0"));
  PipelineSchedule missing = schedule;
  Erase(missing, 1, "norm");
  EXPECT_THAT(Check(missing), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("norm on stage 1 is missing")));
  PipelineSchedule foreign = schedule;
  foreign.lists[1].push_back(tied);
  EXPECT_THAT(Check(foreign),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("tied on stage 1: the stage takes no part in it")));
  foreign.lists[1].back().micro_batch = 2;
  EXPECT_THAT(Check(foreign), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("collective 2 on stage 1: there are 2")));
  PipelineSchedule nowhere = schedule;
  nowhere.collectives[0].stages = {0, 3};
  EXPECT_THAT(Check(nowhere), StatusIs(absl::StatusCode::kInvalidArgument,
                                       HasSubstr("tied of stages 0, 3; they must be of 3 stages")));
}

void ExpectRefused(const PipelineSchedule& schedule, const std::string& text) {
  EXPECT_THAT(Check(schedule), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
}

TEST(CheckTest, RefusesListsThatAreNoStep) {
  const PipelineSchedule right = Create("zb-h1", 3, 4);
  PipelineSchedule wrong = right;
  Erase(wrong, 1, "W2");
  ExpectRefused(wrong, "W2 on stage 1 is missing");
  wrong = right;
  Erase(wrong, 0, "F3");
  ExpectRefused(wrong, "F3 on stage 0 is missing");
  wrong = right;
  Erase(wrong, 2, "B0");
  ExpectRefused(wrong, "B0 on stage 2 is missing");
  wrong = right;
  Swap(wrong, 2, "F1", "B1");
  ExpectRefused(wrong, "B1 on stage 2 comes before F1, which makes its activations");
  wrong = right;
  Swap(wrong, 2, "B0", "W0");
  ExpectRefused(wrong, "W0 on stage 2 comes before B0, which makes what it reads");
  wrong = right;
  Swap(wrong, 2, "W1", "W2");
  ExpectRefused(wrong, "W2 on stage 2 comes before W1, but gradients are added in ascending");
  wrong = Create("gpipe", 1, 3);
  Swap(wrong, 0, "B0", "B1");
  ExpectRefused(wrong, "B1 on stage 0 comes before B0, but gradients are added in ascending");
  // Activations used twice.
  wrong = right;
  wrong.lists[0].push_back({ItemKind::kBackward, 0, 1});
  ExpectRefused(wrong,
                "B1 on stage 0 is there whole and in parts: its activations are freed twice");
  wrong = right;
  wrong.lists[0].push_back({ItemKind::kBackwardWeight, 0, 1});
  ExpectRefused(wrong, "W1 on stage 0: it is there twice");
  wrong = right;
  wrong.lists[2].push_back({ItemKind::kForward, 0, 3});
  ExpectRefused(wrong, "F3 on stage 2: it is there twice");
}

TEST(CheckTest, RefusesTransfersThatDoNotFit) {
  const PipelineSchedule right = Create("1f1b", 3, 4);
  PipelineSchedule wrong = right;
  Erase(wrong, 0, ">a2");
  ExpectRefused(wrong, ">a2 on stage 0 is missing");
  wrong = right;
  Erase(wrong, 1, "<g3");
  ExpectRefused(wrong, "<g3 on stage 1 is missing");
  wrong = right;
  Swap(wrong, 0, "F1", ">a1");
  ExpectRefused(wrong, ">a1 on stage 0 comes before F1, which makes what it sends");
  wrong = right;
  Swap(wrong, 2, "F1", "<a1");
  ExpectRefused(wrong, "F1 on stage 2 comes before <a1, which brings what it reads");
  wrong = right;
  Swap(wrong, 1, "B0", "<g0");
  ExpectRefused(wrong, "B0 on stage 1 comes before <g0, which brings what it reads");
  wrong = right;
  Swap(wrong, 1, "B3", ">g3");
  ExpectRefused(wrong, ">g3 on stage 1 comes before B3, which makes what it sends");
  wrong = right;
  wrong.lists[2].push_back({ItemKind::kSendActivation, 0, 0});
  ExpectRefused(wrong, ">a0 on stage 2: no other stage has the part of the model at its other end");
  wrong = Create("zb-v", 2, 3);
  wrong.lists[1].push_back({ItemKind::kReceiveActivation, 1, 0});
  ExpectRefused(wrong, "<a0' on stage 1: no other stage has the part");
  // Where nothing is sent, the chunks of one stage have their order nevertheless.
  wrong = Create("zb-v", 1, 1);
  Swap(wrong, 0, "F0", "F0'");
  ExpectRefused(wrong, "F0' on stage 0 comes before F0, which makes what it reads");
}

TEST(CheckTest, RefusesItemsThatAreNoneOfTheShape) {
  PipelineSchedule wrong = Create("1f1b", 2, 4);
  wrong.lists[1].push_back({ItemKind::kForward, 0, 4});
  ExpectRefused(wrong, "F4 on stage 1: there are 4 micro-batches");
  wrong.lists[1].back() = {ItemKind::kForward, 1, 3};
  ExpectRefused(wrong, "F3' on stage 1: chunk 1 is none of 1");
  wrong.lists[1].back() = {ItemKind::kForward, 0, -1};
  ExpectRefused(wrong, "F-1 on stage 1: there are 4 micro-batches");
  wrong.lists.pop_back();
  ExpectRefused(wrong, "1 lists for 2 stages");
  wrong.shape.stages = 0;
  ExpectRefused(wrong, "0 stages");
}

// Carries the lists out, as stages would that block at every transfer until its other end is there.
class Replay {
 public:
  explicit Replay(const PipelineSchedule& schedule)
      : schedule_(schedule), next_(schedule.lists.size()), values_(schedule.lists.size()) {}

  // Whether the step ends, with every sum complete and in its order.
  bool IsRight() {
    for (bool moves = true; moves;) {
      moves = false;
      for (int stage = 0; stage < static_cast<int>(next_.size()); ++stage) {
        while (!AtEnd(stage) && Step(stage)) {
          if (wrong_) return false;
          moves = true;
        }
      }
    }
    for (int stage = 0; stage < static_cast<int>(next_.size()); ++stage) {
      if (!AtEnd(stage)) return false;
    }
    const int m = schedule_.shape.micro_batches;
    for (int part = 0; part < schedule_.shape.parts(); ++part) {
      if (static_cast<int>(sums_[part].size()) != m) return false;
    }
    return !wrong_;
  }

 private:
  // What a stage has: "a" activations kept, "x" a chunk's input, "y" its output, "dy" and "dx" the
  // gradients of its output and input; of a part and a micro-batch.
  using Value = std::tuple<std::string, int, int>;

  bool AtEnd(int stage) const {
    return next_[size_t(stage)] == schedule_.lists[size_t(stage)].size();
  }
  const PipelineItem& At(int stage) const {
    return schedule_.lists[size_t(stage)][next_[size_t(stage)]];
  }
  bool Has(int stage, const Value& value) { return values_[size_t(stage)].contains(value); }
  void Make(int stage, const Value& value) {
    if (!values_[size_t(stage)].insert(value).second) wrong_ = true;
  }
  void Take(int stage, const Value& value) {
    if (values_[size_t(stage)].erase(value) == 0) wrong_ = true;
  }

  // False: the stage has to wait.
  bool Step(int stage) {
    const auto [kind, chunk, i] = At(stage);
    if (IsTransfer(kind)) return Exchange(stage);
    const PipelineShape& shape = schedule_.shape;
    const int part = PartOf(shape, stage, chunk), last = shape.parts() - 1;
    const auto is_here = [&](int other) { return PlaceOf(shape, other).stage == stage; };
    if (kind == ItemKind::kForward) {
      if (part > 0 && !Has(stage, {"x", part, i})) wrong_ = true;
      Make(stage, {"a", part, i});
      if (part < last)
        Make(stage, {is_here(part + 1) ? "x" : "y", is_here(part + 1) ? part + 1 : part, i});
    }
    if (kind == ItemKind::kBackward || kind == ItemKind::kBackwardInput) {
      if (!Has(stage, {"a", part, i})) wrong_ = true;
      if (part < last && !Has(stage, {"dy", part, i})) wrong_ = true;
      if (part > 0)
        Make(stage, {is_here(part - 1) ? "dy" : "dx", is_here(part - 1) ? part - 1 : part, i});
      inputs_[part].push_back(i);
      if (inputs_[part].size() != size_t(i) + 1) wrong_ = true;
    }
    if (kind == ItemKind::kBackward || kind == ItemKind::kBackwardWeight) {
      if (inputs_[part].size() < size_t(i) + 1) wrong_ = true;
      Take(stage, {"a", part, i});
      sums_[part].push_back(i);
      if (sums_[part].size() != size_t(i) + 1) wrong_ = true;
    }
    ++next_[size_t(stage)];
    return true;
  }

  bool Exchange(int stage) {
    const PipelineItem& item = At(stage);
    const auto peer = PeerOf(schedule_.shape, stage, item);
    if (!peer.has_value()) return wrong_ = true;
    if (AtEnd(peer->stage) || At(peer->stage).kind != peer->item.kind) return false;
    const auto back = PeerOf(schedule_.shape, peer->stage, At(peer->stage));
    if (!back.has_value() || back->stage != stage) return false;
    // The channel joins what stands at its ends, whatever it is.
    if (!(At(peer->stage) == peer->item)) return wrong_ = true;
    const bool sends = IsSend(item.kind);
    const int from = sends ? stage : peer->stage, to = sends ? peer->stage : stage;
    const PipelineItem sent = sends ? item : peer->item;
    const PipelineItem received = sends ? peer->item : item;
    const bool is_activation = sent.kind == ItemKind::kSendActivation;
    Take(from,
         {is_activation ? "y" : "dx", PartOf(schedule_.shape, from, sent.chunk), sent.micro_batch});
    Make(to, {is_activation ? "x" : "dy", PartOf(schedule_.shape, to, received.chunk),
              sent.micro_batch});
    ++next_[size_t(from)];
    ++next_[size_t(to)];
    return true;
  }

  const PipelineSchedule& schedule_;
  std::vector<size_t> next_;
  std::vector<std::set<Value>> values_;
  std::map<int, std::vector<int>> inputs_, sums_;
  bool wrong_ = false;
};

TEST(CheckTest, SaysOfSwappedItemsWhatCarryingThemOutSays) {
  std::mt19937 random(21);
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  int right = 0, refused = 0;
  for (const char* const name : kNames) {
    for (const auto& [p, m] : {std::pair(2, 2), {2, 4}, {3, 3}, {4, 4}, {3, 6}}) {
      const PipelineSchedule schedule = Create(name, p, m);
      ASSERT_TRUE(Replay(schedule).IsRight()) << name << " " << p << " " << m;
      for (int i = 0; i < 60; ++i) {
        PipelineSchedule swapped = schedule;
        StageList& list = swapped.lists[below(swapped.lists.size())];
        // Mostly near each other: others are hardly ever right. Now and then on another stage.
        StageList& other = i % 10 == 0 ? swapped.lists[below(swapped.lists.size())] : list;
        const size_t a = below(list.size());
        const size_t b = &other != &list || i % 3 == 0
                             ? below(other.size())
                             : std::min(a + 1 + below(3), list.size() - 1);
        std::swap(list[a], other[b]);
        const bool is_right = Replay(swapped).IsRight();
        const auto buffers = Check(swapped);
        ASSERT_EQ(buffers.ok(), is_right)
            << name << " " << p << " " << m << ": " << buffers.status() << "\n"
            << ToString(swapped, list) << "\n"
            << ToString(swapped, other);
        ++(is_right ? right : refused);
      }
    }
  }
  // Both happen.
  EXPECT_GT(right, 100);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace brigade::parallel
