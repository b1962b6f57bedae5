// What libstdc++_pic.a lacks of Debian's libstdc++.so.6, of what Debian's libraries call. pack
// links it in.

#include <sys/random.h>

#include <cstdlib>
#include <istream>
#include <string>

// For std::random_device; that of the C library is newer than the packages' oldest host. Hidden:
// this library's own.
extern "C" [[gnu::visibility("hidden")]] unsigned int arc4random() {
  unsigned int value;
  if (getrandom(&value, sizeof(value), 0) != sizeof(value)) std::abort();
  return value;
}

namespace std {

// The standard's default argument, eof, as a function of its own.
template <>
istream& istream::ignore(streamsize count) {
  return ignore(count, char_traits<char>::eof());
}
template <>
wistream& wistream::ignore(streamsize count) {
  return ignore(count, char_traits<wchar_t>::eof());
}

}  // namespace std
