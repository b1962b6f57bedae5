// Checksums of messages: any byte of any message that arrives otherwise is found, and both ends are
// named; and ranks that do not all verify are told.

#include <atomic>
#include <barrier>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/collectives/engines/transport/checked_transport.h"
#include "brigade/collectives/engines/transport/transport_engine.h"
#include "brigade/device/status_macros.h"
#include "brigade/tests/collectives/engines/transport/memory_transport.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::collectives::testing {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Of the messages that come to a rank, in the order in which it waits for them.
struct Damage {
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  int rank = 0;
  int message = 0;
  int64_t byte = kNone;
  // The transport's name.
  std::string group = "";

  // What is found of it: from whom, and of how many bytes.
  std::atomic<int> from = -1;
  std::atomic<int64_t> bytes = 0;
};

// Another transport, a byte of whose messages arrives otherwise.
class DamagingTransport final : public Transport {
 public:
  DamagingTransport(std::unique_ptr<Transport> below, Damage* damage)
      : below_(std::move(below)), damage_(damage), expected_(static_cast<size_t>(below_->size())) {}

  int rank() const override { return below_->rank(); }
  int size() const override { return below_->size(); }
  std::string name() const override { return damage_ == nullptr ? "" : damage_->group; }
  absl::Status SendUpTo(int to, const void* data, int64_t bytes, int64_t capacity) override {
    return below_->SendUpTo(to, data, bytes, capacity);
  }
  absl::Status Expect(int from, void* data, int64_t bytes) override {
    expected_[static_cast<size_t>(from)].push_back({static_cast<char*>(data), bytes});
    return below_->Expect(from, data, bytes);
  }
  absl::Status Await(int from) override {
    BRIGADE_RETURN_IF_ERROR(below_->Await(from));
    const auto [data, bytes] = expected_[static_cast<size_t>(from)].front();
    expected_[static_cast<size_t>(from)].pop_front();
    if (damage_ == nullptr || awaited_++ != damage_->message) return absl::OkStatus();
    damage_->from = from;
    damage_->bytes = bytes;
    if (damage_->byte < bytes) data[damage_->byte] ^= 0x04;
    return absl::OkStatus();
  }
  absl::Status Flush() override { return below_->Flush(); }
  void Abort(const absl::Status& reason) override { below_->Abort(reason); }
  absl::Status status() const override { return below_->status(); }
  int64_t sent_bytes(int to) const override { return below_->sent_bytes(to); }

 private:
  const std::unique_ptr<Transport> below_;
  Damage* const damage_;
  std::vector<std::deque<std::pair<char*, int64_t>>> expected_;
  int awaited_ = 0;
};

struct Sum {
  std::vector<absl::Status> statuses;
  std::vector<std::vector<float>> outputs;
};

// A sum of ones over ranks; `verifies` by rank. `in_part`: in a group that theirs makes, to which
// the damage happens.
Sum AllReduce(int64_t count, Algorithm algorithm, const std::vector<bool>& verifies, Damage* damage,
              bool in_part = false) {
  const int size = static_cast<int>(verifies.size());
  Sum sum;
  sum.statuses.resize(verifies.size());
  sum.outputs.assign(verifies.size(), std::vector<float>(static_cast<size_t>(count)));
  MemoryNetwork network(size), part(size);
  std::vector<int> members(verifies.size());
  std::iota(members.begin(), members.end(), 0);
  std::barrier done(size);
  OnThreadsOf(size, [&](int rank) {
    const auto r = static_cast<size_t>(rank);
    const std::vector<float> input(static_cast<size_t>(count), 1);
    ASSERT_OK_AND_ASSIGN(const std::shared_ptr<device::Context> context,
                         device::Context::Create({}));
    ASSERT_OK_AND_ASSIGN(const auto stream, context->CreateStream("compute"));
    Damage* const mine = damage != nullptr && damage->rank == rank ? damage : nullptr;
    const auto damaging = [rank](MemoryNetwork& on, Damage* damage) {
      return std::make_unique<DamagingTransport>(std::make_unique<MemoryTransport>(rank, on),
                                                 damage);
    };
    ASSERT_OK_AND_ASSIGN(
        const auto whole,
        CreateTransportEngine(damaging(network, in_part ? nullptr : mine),
                              [&](absl::Span<const int> /*members*/, absl::Span<const int> /*lost*/,
                                  const std::string& /*label*/) { return damaging(part, mine); },
                              context, {.verify_messages = verifies[r]}));
    std::unique_ptr<Engine> made;
    if (in_part) {
      ASSERT_OK_AND_ASSIGN(made, whole->CreateSubgroup(members, {}, /*generation=*/1));
    }
    Engine* const engine = in_part ? made.get() : whole.get();
    CollectiveSignature signature;
    signature.kind = CollectiveKind::kAllReduce;
    signature.count = count;
    signature.algorithm = algorithm;
    signature.dtype = precision::DType::kFloat32;
    sum.statuses[r] = engine->Run(
        {.signature = signature, .input = input.data(), .output = sum.outputs[r].data()}, *stream);
    if (sum.statuses[r].ok()) sum.statuses[r] = stream->Synchronize();
    done.arrive_and_wait();
    // Of a rank that had ended before.
    if (sum.statuses[r].ok()) sum.statuses[r] = engine->status();
  });
  return sum;
}

void ExpectRight(const Sum& sum) {
  for (size_t rank = 0; rank < sum.statuses.size(); ++rank) {
    EXPECT_OK(sum.statuses[rank]);
    for (const float value : sum.outputs[rank]) {
      ASSERT_EQ(value, static_cast<float>(sum.statuses.size()));
    }
  }
}

TEST(VerifiedMessagesTest, AnyByteOfAnyMessageThatArrivesOtherwiseIsFound) {
  int found = 0, without_effect = 0;
  for (const int size : {2, 3}) {
    // With a fingerprint, and in messages of their own.
    for (const int64_t count : {60, 6000}) {
      for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kRing}) {
        const std::vector<bool> verifies(static_cast<size_t>(size), true);
        ExpectRight(AllReduce(count, algorithm, verifies, nullptr));
        for (int message = 0;; ++message) {
          Damage damage = {.rank = 1, .message = message};
          ExpectRight(AllReduce(count, algorithm, verifies, &damage));
          if (damage.from < 0) break;
          const int64_t bytes = damage.bytes;
          // Each byte of what stands in front of a frame's payload, and some of the others.
          for (int64_t byte = 0; byte < bytes; byte += byte < 160 ? 5 : bytes / 4) {
            SCOPED_TRACE(absl::StrCat(size, " ranks, ", count, " elements, algorithm ",
                                      static_cast<int>(algorithm), ", message ", message, " of ",
                                      bytes, " bytes, byte ", byte));
            damage.byte = byte;
            const Sum sum = AllReduce(count, algorithm, verifies, &damage);
            // Of a frame, behind what it has.
            if (sum.statuses[0].ok() && sum.statuses[1].ok()) {
              ExpectRight(sum);
              EXPECT_NE(bytes, 4);
              ++without_effect;
              continue;
            }
            ++found;
            for (const absl::Status& status : sum.statuses) {
              EXPECT_THAT(status,
                          StatusIs(absl::StatusCode::kDataLoss,
                                   AllOf(HasSubstr(absl::StrCat("what rank ", damage.from.load(),
                                                                " sent to rank 1 has arrived "
                                                                "with other bits")),
                                         HasSubstr("rank 1 calls all_reduce(sum of "))));
            }
            if (::testing::Test::HasFailure()) return;
          }
        }
      }
    }
  }
  EXPECT_GT(found, 300);
  EXPECT_GT(without_effect, 0);
}

// Which verifies because the whole does.
TEST(VerifiedMessagesTest, APartOfAGroupIsNamedInFrontOfItsNumbers) {
  Damage damage = {.rank = 1, .message = 0, .byte = 0, .group = "group of ranks 2 and 3"};
  const Sum sum = AllReduce(60, Algorithm::kDirect, {true, true}, &damage, /*in_part=*/true);
  for (const absl::Status& status : sum.statuses) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kDataLoss,
                                 HasSubstr("in the group of ranks 2 and 3: what rank 0 sent to "
                                           "rank 1 has arrived with other bits")));
  }
}

// Of the checksum that nobody has sent, each bit but the sign.
TEST(VerifiedMessagesTest, WithoutChecksumsAFlipOfOneIsNoneOfTheirs) {
  const std::vector<bool> verifies(2, false);
  // A fingerprint, and how many bytes follow.
  constexpr int64_t kBegin = sizeof(Fingerprint) + sizeof(int64_t);
  for (int64_t byte = kBegin; byte < kBegin + 8; ++byte) {
    SCOPED_TRACE(byte);
    Damage damage = {.rank = 1, .message = 0, .byte = byte};
    ExpectRight(AllReduce(60, Algorithm::kDirect, verifies, &damage));
    EXPECT_GT(damage.bytes, kBegin + 8);
  }
}

// A rank that does not verify takes what comes.
TEST(VerifiedMessagesTest, WithoutChecksumsNobodyFindsIt) {
  const std::vector<bool> verifies(3, false);
  for (int message = 0; message < 20; ++message) {
    Damage damage = {.rank = 1, .message = message};
    const Sum sum = AllReduce(6000, Algorithm::kDirect, verifies, &damage);
    ExpectRight(sum);
    if (damage.bytes < 4000) continue;
    damage.byte = damage.bytes / 2 + 3;
    const Sum damaged = AllReduce(6000, Algorithm::kDirect, verifies, &damage);
    for (const absl::Status& status : damaged.statuses) EXPECT_OK(status);
    EXPECT_NE(damaged.outputs, sum.outputs);
    return;
  }
  FAIL() << "no message carries a part";
}

TEST(VerifiedMessagesTest, AllRanksVerifyOrNone) {
  for (const int odd : {0, 1, 2}) {
    SCOPED_TRACE(odd);
    for (const bool verifies : {false, true}) {
      std::vector<bool> all(3, verifies);
      all[static_cast<size_t>(odd)] = !verifies;
      for (const absl::Status& status : AllReduce(60, Algorithm::kDirect, all, nullptr).statuses) {
        EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                     AllOf(HasSubstr(absl::StrCat("rank ", odd)),
                                           HasSubstr("verifies what messages carry, but rank "))));
      }
    }
  }
}

// Many payloads on their way at once, with a fingerprint and in messages of their own: each is
// compared with the checksum behind it.
TEST(VerifiedMessagesTest, OfManyPayloadsOnTheirWayEachHasItsOwn) {
  constexpr int64_t kSizes[] = {700, 0, 1025, 1, 5000, 1024, 3, 40'000, 1025};
  constexpr int kPayloads = 45;
  // From one rank to the other, and with which of them what arrives otherwise.
  const auto exchange = [&](int damaged, std::vector<absl::Status>& statuses) {
    MemoryNetwork network(2);
    statuses.assign(2, absl::OkStatus());
    OnThreadsOf(2, [&](int rank) {
      const int other = 1 - rank;
      Damage damage = {.rank = 1, .message = damaged, .byte = 0};
      DamagingTransport transport(std::make_unique<MemoryTransport>(rank, network),
                                  rank == 1 && damaged >= 0 ? &damage : nullptr);
      CheckedTransport checked(transport, /*verifies=*/true);
      std::vector<std::string> mine, others;
      for (int i = 0; i < kPayloads; ++i) {
        const auto size = static_cast<size_t>(kSizes[static_cast<size_t>(i) % std::size(kSizes)]);
        mine.emplace_back(size, static_cast<char>('0' + i + 50 * rank));
        others.emplace_back(size, ' ');
      }
      const auto run = [&]() -> absl::Status {
        BRIGADE_RETURN_IF_ERROR(checked.Begin({}, other, other));
        for (size_t i = 0; i < mine.size(); ++i) {
          const auto bytes = static_cast<int64_t>(mine[i].size());
          BRIGADE_RETURN_IF_ERROR(checked.Expect(other, others[i].data(), bytes));
          BRIGADE_RETURN_IF_ERROR(checked.Send(other, mine[i].data(), bytes));
        }
        for (size_t i = 0; i < mine.size(); ++i) {
          BRIGADE_RETURN_IF_ERROR(checked.Await(other));
          const char wanted = static_cast<char>('0' + static_cast<int>(i) + 50 * other);
          EXPECT_EQ(others[i], std::string(mine[i].size(), wanted)) << i;
        }
        return checked.Flush();
      };
      statuses[static_cast<size_t>(rank)] = run();
    });
  };
  std::vector<absl::Status> statuses;
  exchange(-1, statuses);
  for (const absl::Status& status : statuses) ASSERT_OK(status);
  // The frame, which has the first one, then all others with a checksum behind each. What has no
  // byte arrives as it is.
  for (int message = 0; message < 1 + 2 * (kPayloads - 1); ++message) {
    const int payload = (message + 1) / 2;
    const bool is_empty =
        message % 2 == 1 && kSizes[static_cast<size_t>(payload) % std::size(kSizes)] == 0;
    exchange(message, statuses);
    if (is_empty) {
      for (const absl::Status& status : statuses) EXPECT_OK(status) << message;
    } else {
      EXPECT_THAT(statuses[1], StatusIs(absl::StatusCode::kDataLoss)) << message;
    }
  }
}

}  // namespace
}  // namespace brigade::collectives::testing
