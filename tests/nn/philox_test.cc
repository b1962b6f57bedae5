#include "brigade/nn/philox.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace brigade::nn {
namespace {

// Random123's known answers (kat_vectors, philox4x32 10).
TEST(PhiloxTest, GivesTheKnownAnswers) {
  constexpr uint32_t kOnes = 0xffffffffu;
  const struct {
    PhiloxWords counter;
    uint32_t key[2];
    PhiloxWords answer;
  } cases[] = {
      {{{0, 0, 0, 0}}, {0, 0}, {{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}}},
      {{{kOnes, kOnes, kOnes, kOnes}},
       {kOnes, kOnes},
       {{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}}},
      {{{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}},
       {0xa4093822u, 0x299f31d0u},
       {{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}}},
  };
  for (const auto& known : cases) {
    const PhiloxWords words = Philox(known.counter, uint64_t{known.key[1]} << 32 | known.key[0]);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(words.word[i], known.answer.word[i]) << i;
  }
}

}  // namespace
}  // namespace brigade::nn
