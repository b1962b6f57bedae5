#include "brigade/collectives/internal/frame_buffer.h"

#include <arpa/inet.h>

#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::collectives::internal {
namespace {

using ::brigade::testing::StatusIs;

std::string Frame(const std::string& payload) {
  const uint32_t length = htonl(static_cast<uint32_t>(payload.size()));
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + payload;
}

TEST(FrameBufferTest, TakesWholeFramesHoweverTheyCome) {
  const std::string all = Frame("one") + Frame("") + Frame(std::string(1000, 'x')) + Frame("last");
  for (const size_t piece : {1, 2, 3, 7, 1000, 5000}) {
    FrameBuffer buffer;
    std::vector<std::string> frames;
    for (size_t at = 0; at < all.size(); at += piece) {
      buffer.Append(all.substr(at, piece));
      std::string frame;
      while (buffer.Take(1000, frame).value()) frames.push_back(frame);
    }
    EXPECT_EQ(frames, (std::vector<std::string>{"one", "", std::string(1000, 'x'), "last"}));
    EXPECT_EQ(buffer.size(), 0u);
  }
}

TEST(FrameBufferTest, RefusesALengthBeforeWhatItAnnouncesIsThere) {
  FrameBuffer buffer;
  buffer.Append(Frame(std::string(11, 'x')).substr(0, FrameBuffer::kHeaderBytes));
  std::string frame;
  EXPECT_THAT(buffer.Take(10, frame).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, "a message of 11 bytes, of at most 10"));
  EXPECT_OK(buffer.Take(11, frame).status());
}

// A million messages in one piece: work that grew with their square would not end.
TEST(FrameBufferTest, TakesManyTinyFramesInLinearTime) {
  constexpr int kFrames = 1'000'000;
  std::string all;
  for (int i = 0; i < kFrames; ++i) all += Frame("a");
  FrameBuffer buffer;
  buffer.Append(all);
  std::string frame;
  int frames = 0;
  while (buffer.Take(10, frame).value()) ++frames;
  EXPECT_EQ(frames, kFrames);
}

}  // namespace
}  // namespace brigade::collectives::internal
