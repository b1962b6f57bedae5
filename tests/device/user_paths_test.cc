#include "brigade/device/user_paths.h"

#include <cstdlib>

#include "gtest/gtest.h"

namespace brigade::device {
namespace {

TEST(UserPathsTest, PathsAreFromTheUsersFolder) {
  unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(FromUsersFolder("a/b"), "a/b");
  setenv("BUILD_WORKING_DIRECTORY", "/home/me", 1);
  EXPECT_EQ(FromUsersFolder("a/b"), "/home/me/a/b");
  EXPECT_EQ(FromUsersFolder("/a"), "/a");
  EXPECT_EQ(FromUsersFolder(""), "");
  unsetenv("BUILD_WORKING_DIRECTORY");
}

TEST(UserPathsTest, AFileThatIsNowhereKeepsItsName) {
  EXPECT_EQ(DataFile("no/such/file"), "no/such/file");
}

}  // namespace
}  // namespace brigade::device
