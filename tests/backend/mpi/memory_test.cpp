#include <gradweave/backend/mpi/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <doctest/doctest.h>

#include "tests/support/mpi.hpp"

using namespace gradweave;
using namespace gradweave::backend;

TEST_CASE("mpi memory: MPI may work in arenas that live, and nowhere else") {
  tests::mpi_world::instance();
  const auto of = std::make_shared<mpi::library>(false);
  const auto list = std::make_shared<mpi::arena_list>();
  const auto span = [](std::byte* begin, std::size_t bytes) { return std::span<const std::byte>(begin, bytes); };
  std::byte own[8];
  std::optional<mpi::arena> first(std::in_place, of, list, 100);
  mpi::arena second(of, list, 50);
  std::byte* const memory = first->data();
  CHECK(list->holds(span(memory, 100)));
  CHECK(list->holds(span(memory + 99, 1)));
  CHECK_FALSE(list->holds(span(memory + 99, 2)));
  CHECK_FALSE(list->holds(span(own, 1)));
  mpi::arena moved = std::move(*first);
  first.reset();
  CHECK(list->holds(span(memory, 100)));
  moved = std::move(second);
  CHECK(list->holds(span(moved.data(), 50)));
}

TEST_CASE("mpi memory: an arena that MPI is at work in outlives its owner") {
  tests::mpi_world::instance();
  const auto list = std::make_shared<mpi::arena_list>();
  std::byte* memory = nullptr;
  {
    const mpi::arena one(std::make_shared<mpi::library>(false), list, 4096);
    memory = one.data();
    list->set_busy(true);
  }
  memory[4095] = std::byte{1};  // a sanitizer would see it if that were gone
  CHECK_FALSE(list->holds(std::span<const std::byte>(memory, 1)));
}
