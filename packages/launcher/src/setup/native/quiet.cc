// A library that is loaded before TensorFlow's. TensorFlow heeds TF_CPP_MIN_LOG_LEVEL only after it has
// told every process about its instruction sets.
#include <cstdlib>

#include "absl/log/globals.h"

__attribute__((constructor)) static void quiet() {
  const char* level = getenv("TF_CPP_MIN_LOG_LEVEL");
  if (level) absl::SetMinLogLevel(static_cast<absl::LogSeverityAtLeast>(atoi(level)));
}
