// A library that is new enough and lacks nearly everything.

extern "C" int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
