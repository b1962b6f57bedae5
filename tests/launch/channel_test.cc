#include "brigade/launch/channel.h"

#include <unistd.h>

#include <memory>
#include <optional>
#include <random>
#include <string>

#include "brigade/launch/agent.h"
#include "brigade/launch/hosts.h"
#include "brigade/launch/ranks.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace brigade::launch {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A channel, and the other ends of its pipes.
struct Ends {
  Ends() {
    int in[2], out[2];
    if (pipe(in) != 0 || pipe(out) != 0) std::abort();
    channel = std::make_unique<Channel>(in[0], out[1]);
    write_end = in[1], read_end = out[0];
  }
  ~Ends() {
    if (write_end >= 0) close(write_end);
    close(read_end);
  }
  void Say(const std::string& bytes) {
    ASSERT_EQ(write(write_end, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    ASSERT_TRUE(channel->Read().value());
  }

  std::unique_ptr<Channel> channel;
  int write_end, read_end;
};

TEST(ChannelTest, AMessageMayHoldAnything) {
  Ends a, b;
  const Message message = {"output", "", std::string("\0\n@brigade_launch 3\n", 20), "\xff"};
  a.channel->Send(message);
  a.channel->Send({"next"});
  char bytes[4096];
  const ssize_t got = read(a.read_end, bytes, sizeof(bytes));
  ASSERT_GT(got, 0);
  // In any pieces.
  for (ssize_t i = 0; i + 1 < got; ++i) {
    b.Say(std::string(bytes + i, 1));
    if (i == 3) {
      EXPECT_EQ(b.channel->Next().value(), std::nullopt);
    }
  }
  EXPECT_EQ(b.channel->Next().value(), message);
  EXPECT_EQ(b.channel->Next().value(), std::nullopt);
  b.Say(std::string(bytes + got - 1, 1));
  EXPECT_THAT(*b.channel->Next().value(), ElementsAre("next"));
}

TEST(ChannelTest, WhatAShellSaysBeforeIsNoise) {
  Ends ends;
  ends.Say("Welcome to b\r\n\nlast login\n\033]0;title\007@brigade_launch 7\n5:hello");
  for (const char* const line : {"Welcome to b", "", "last login", "\033]0;title\007"}) {
    EXPECT_THAT(*ends.channel->Next().value(), ElementsAre("noise", line));
  }
  EXPECT_THAT(*ends.channel->Next().value(), ElementsAre("hello"));
  ends.Say("a line\n");
  EXPECT_THAT(ends.channel->Next().status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"a line\" instead of a")));
}

TEST(ChannelTest, WhatIsNoMessageIsAnError) {
  const struct {
    std::string bytes;
    const char* error;
  } cases[] = {
      {"@brigade_launch x\n", "is no length of a message"},
      {"@brigade_launch 99999999999\n", "\"99999999999\" is no length"},
      {"@brigade_launch -1\n", "is no length"},
      {"@brigade_launch 3\n5:h", "not a message of this protocol"},
      {"@brigade_launch 0\n", "an empty message"},
      {std::string(5000, 'x'), "a long line instead of a message"},
  };
  for (const auto& each : cases) {
    Ends ends;
    ends.Say(each.bytes);
    EXPECT_THAT(ends.channel->Next().status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(each.error)))
        << each.bytes.substr(0, 40);
  }
}

TEST(ChannelTest, NobodyWaitsForAReader) {
  Ends ends;
  const std::string much(1 << 20, 'm');
  ends.channel->Send({"output", much});
  EXPECT_GT(ends.channel->unsent(), size_t{1} << 19);
  EXPECT_GE(ends.channel->output(), 0);
  close(ends.read_end);
  ends.read_end = dup(0);
  signal(SIGPIPE, SIG_IGN);
  ends.channel->Flush();
  EXPECT_EQ(ends.channel->unsent(), 0u);
  ends.channel->Send({"output", much});
  EXPECT_EQ(ends.channel->unsent(), 0u);
}

StartOrder Order() {
  StartOrder order;
  order.program = {"train", "--x=1", ""};
  order.directory = "/a b";
  order.log_directory = "/logs";
  order.bind_cores = true;
  order.grace = absl::Seconds(2.5);
  order.variables = {{"A", "1\n2"}};
  order.ranks = {{4, 0, {{"RANK", "4"}}}, {5, 1, {}}};
  return order;
}

TEST(ChannelTest, AnOrderToStartComesAsItWasGiven) {
  const StartOrder order = Order();
  const auto came = StartOrderFrom(ToMessage(order));
  ASSERT_TRUE(came.ok()) << came.status();
  EXPECT_EQ(ToMessage(*came), ToMessage(order));
  EXPECT_EQ(came->program, order.program);
  EXPECT_EQ(came->grace, order.grace);
  EXPECT_EQ(came->variables, order.variables);
  ASSERT_EQ(came->ranks.size(), 2u);
  EXPECT_EQ(came->ranks[0].variables, order.ranks[0].variables);
  EXPECT_EQ(came->ranks[1].local_rank, 1);
}

// Of the largest host, with as many arguments and variables as a process may have.
TEST(ChannelTest, AnOrderToStartThousandsOfRanksIsAMessage) {
  Gathering gathering;
  gathering.hosts.resize(3);
  for (Host& host : gathering.hosts) {
    for (int slot = 0; slot < kMostSlots; ++slot) host.slots.push_back(slot);
  }
  gathering.secret = std::string(64, 's');
  const auto ranks = RanksOf(gathering);
  ASSERT_EQ(ranks[2].ranks.back().rank, 3 * kMostSlots - 1);
  StartOrder order = Order();
  order.variables = ranks[2].variables;
  order.variables["A"] = std::string(size_t{6} << 20, 'a');
  order.ranks = ranks[2].ranks;
  const Message message = ToMessage(order);

  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Channel from(dup(0), ends[1]), to(ends[0], dup(0));
  from.Send(message);
  absl::StatusOr<std::optional<Message>> came = std::nullopt;
  while (came.ok() && !came->has_value()) {
    from.Flush();
    ASSERT_TRUE(to.Read().ok());
    came = to.Next();
  }
  ASSERT_TRUE(came.ok()) << came.status();
  EXPECT_EQ(**came, message);
  EXPECT_EQ(StartOrderFrom(**came)->ranks.size(), static_cast<size_t>(kMostSlots));
}

// No order, however it was changed, is more than an error.
TEST(ChannelTest, AChangedOrderIsAnErrorOrAnOrder) {
  std::mt19937 random(7);
  const Message whole = ToMessage(Order());
  int errors = 0;
  for (int round = 0; round < 20000; ++round) {
    Message message = whole;
    std::string& field = message[random() % message.size()];
    switch (random() % 4) {
      case 0:
        if (!field.empty()) field[random() % field.size()] = static_cast<char>(random());
        break;
      case 1:
        field.resize(random() % (field.size() + 1));
        break;
      case 2:
        field.insert(random() % (field.size() + 1), 1, static_cast<char>(random()));
        break;
      default:
        message.resize(1 + random() % message.size());
    }
    if (!StartOrderFrom(message).ok()) ++errors;
  }
  EXPECT_GT(errors, 5000);
}

}  // namespace
}  // namespace brigade::launch
