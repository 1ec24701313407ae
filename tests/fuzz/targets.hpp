/// @file
/// All fuzz targets by name. A target's corpus is tests/fuzz/corpus/<name>.
#pragma once

#include "tests/fuzz/agreement.hpp"
#include "tests/fuzz/check.hpp"
#include "tests/fuzz/envelope.hpp"
#include "tests/fuzz/failure_message.hpp"
#include "tests/fuzz/frames.hpp"
#include "tests/fuzz/hello.hpp"
#include "tests/fuzz/meeting_place.hpp"
#include "tests/fuzz/mesh_call.hpp"
#include "tests/fuzz/opening.hpp"
#include "tests/fuzz/plan.hpp"
#include "tests/fuzz/step_record.hpp"
#include "tests/fuzz/welcome.hpp"

namespace gradweave::fuzz {

struct target {
  const char* name;
  void (*run)(bytes_view);
};

inline constexpr target targets[] = {
    {"agreement", agreement},     {"envelope", envelope}, {"failure_message", failure_message},
    {"frames", frames},           {"hello", hello},       {"meeting_place", meeting_place},
    {"mesh_call", mesh_call},     {"opening", opening},   {"plan", plan},
    {"step_record", step_record}, {"welcome", welcome},
};

}  // namespace gradweave::fuzz
