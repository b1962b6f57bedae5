#ifndef BRIGADE_TESTS_TESTING_JUMPING_CLOCK_H_
#define BRIGADE_TESTS_TESTING_JUMPING_CLOCK_H_

namespace brigade::testing {

// Sets the clock of the day, of this process alone: so many hours later than it is. The steady
// clock goes on as it does. Beside that it is as many hours later as the file $BRIGADE_TEST_HOURS
// has bytes, if the variable is set.
void SetClockAhead(int hours);

}  // namespace brigade::testing

#endif  // BRIGADE_TESTS_TESTING_JUMPING_CLOCK_H_
