// A library that is loaded before TensorFlow. TensorFlow respects TF_CPP_MIN_LOG_LEVEL only after it has logged the
// instruction sets in every process.
#include <cstdlib>

#include "absl/log/globals.h"

__attribute__((constructor)) static void quiet() {
  const char* level = getenv("TF_CPP_MIN_LOG_LEVEL");
  if (level) absl::SetMinLogLevel(static_cast<absl::LogSeverityAtLeast>(atoi(level)));
}
