#ifndef BRIGADE_TESTS_OPTIM_SAME_BITS_H_
#define BRIGADE_TESTS_OPTIM_SAME_BITS_H_

#include "brigade/tests/kernels/testing.h"
#include "brigade/tests/optim/training.h"
#include "brigade/tests/testing/status_matchers.h"
#include "gtest/gtest.h"

namespace brigade::optim {

// Compares everything that training changes.
inline void ExpectSameBits(Trainer& trainer, const Specified& wanted, const Training& training) {
  const auto saved = trainer.optimizer->SaveState(*trainer.stream);
  ASSERT_OK(saved);
  EXPECT_EQ(saved->step.step, wanted.state.step);
  EXPECT_EQ(saved->step.iteration, wanted.state.iteration);
  EXPECT_EQ(saved->step.last_overflow, wanted.state.last_overflow);
  EXPECT_EQ(saved->step.loss_scale, wanted.state.loss_scale);
  EXPECT_EQ(saved->step.grad_norm, wanted.state.grad_norm);
  EXPECT_EQ(saved->step.skip, wanted.state.skip ? 1 : 0);
  const int moments = Moments(training.options.optimizer);
  size_t at = 0;
  for (size_t i = 0; i < wanted.master.size(); ++i) {
    const Values weights = trainer.Weights(i, training.types[i].weight_dtype);
    ASSERT_EQ(weights.size(), wanted.weights[i].size());
    for (size_t j = 0; j < weights.size(); ++j, ++at) {
      const auto where = [&] {
        return ::testing::Message() << "tensor " << i << ", element " << j;
      };
      ASSERT_TRUE(kernels::SameBits(weights[j], wanted.weights[i][j])) << where();
      ASSERT_TRUE(kernels::SameBits(saved->master[at], wanted.master[i][j])) << where();
      if (moments < 1) continue;
      ASSERT_TRUE(kernels::SameBits(saved->first_moment[at], wanted.m[i][j])) << where();
      if (moments < 2) continue;
      ASSERT_TRUE(kernels::SameBits(saved->second_moment[at], wanted.v[i][j])) << where();
    }
  }
  EXPECT_EQ(saved->master.size(), at);
  EXPECT_EQ(saved->first_moment.size(), moments >= 1 ? at : 0);
  EXPECT_EQ(saved->second_moment.size(), moments == 2 ? at : 0);
}

}  // namespace brigade::optim

#endif  // BRIGADE_TESTS_OPTIM_SAME_BITS_H_
