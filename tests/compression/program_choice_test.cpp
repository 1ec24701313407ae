#include <gradweave/compression/program_choice.hpp>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {
template <int Marker>
struct marked_program {
  std::size_t scratch_bytes() const { return Marker; }
  std::size_t non_finite() const { return Marker * 10; }
  std::optional<collective_request> run(int stage, std::span<std::byte>) {
    return collective_request{.root = Marker + stage};
  }
};
}  // namespace

TEST_CASE("program_choice: forwards to the program that it holds") {
  compression::program_choice<marked_program<1>, marked_program<2>> program(marked_program<2>{});
  CHECK(program.scratch_bytes() == 2);
  CHECK(program.non_finite() == 20);
  CHECK(program.run(5, {})->root == 7);
}
