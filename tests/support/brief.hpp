/// @file
/// Tests that repeat something often do it less often where GRADWEAVE_TEST_BRIEF is set: under sanitizers, which make
/// everything slow.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <vector>

namespace gradweave::tests {

inline bool is_brief() { return std::getenv("GRADWEAVE_TEST_BRIEF") != nullptr; }

/// A fifth of so many repetitions, where that is asked for.
inline std::size_t repetitions(std::size_t usual) { return is_brief() ? (usual + 4) / 5 : usual; }

/// Of these world sizes only three ranks, where that is asked for: no power of two, and more than one peer each.
inline std::vector<int> world_sizes(std::vector<int> usual) { return is_brief() ? std::vector<int>{3} : usual; }

}  // namespace gradweave::tests
