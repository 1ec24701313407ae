/// @file
/// A stage program that is one of several, chosen when it is prepared.
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include <gradweave/backend/concept.hpp>
#include <gradweave/compression/concept.hpp>

namespace gradweave::compression {

/// Models stage_program, with its optional atoms, by forwarding to the one that it holds.
template <stage_program... Programs>
class program_choice {
 public:
  template <class Program>
    requires(std::same_as<Program, Programs> || ...)
  program_choice(Program program) : held_(std::move(program)) {}

  std::size_t scratch_bytes() const {
    return std::visit([](const auto& program) { return program.scratch_bytes(); }, held_);
  }
  std::size_t non_finite() const {
    return std::visit([](const auto& program) { return program.non_finite(); }, held_);
  }
  std::optional<collective_request> run(int stage, std::span<std::byte> scratch) {
    return std::visit([&](auto& program) { return program.run(stage, scratch); }, held_);
  }
  void before_reduction() {
    std::visit([](auto& program) { gradweave::before_reduction(program); }, held_);
  }
  void after_reduction() {
    std::visit([](auto& program) { gradweave::after_reduction(program); }, held_);
  }

 private:
  std::variant<Programs...> held_;
};

}  // namespace gradweave::compression
