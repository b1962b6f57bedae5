#include "brigade/device/printable.h"

#include <string>

#include "gtest/gtest.h"

namespace brigade::device {
namespace {

TEST(PrintableTest, ShowsBytesThatATerminalObeys) {
  EXPECT_EQ(Printable("rank 3: 100 %"), "rank 3: 100 %");
  EXPECT_EQ(Printable(absl::string_view("a\x1b[2J\n\0\x9b\xc3\xa9\x7f", 11)),
            "a\\x1b[2J\\x0a\\x00\\x9b\\xc3\\xa9\\x7f");
}

TEST(PrintableTest, CutsWhatIsTooLong) {
  for (const char c : {'a', '\n'}) {
    for (const size_t most : {size_t{8}, size_t{160}, size_t{1800}}) {
      const std::string shown = Printable(std::string(1 << 20, c), most);
      EXPECT_LE(shown.size(), most);
      EXPECT_EQ(shown.substr(shown.size() - 3), "...");
    }
  }
  EXPECT_EQ(Printable(std::string(1792, 'a')), std::string(1792, 'a'));
}

}  // namespace
}  // namespace brigade::device
