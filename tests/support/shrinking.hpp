/// @file
/// Makes a program that shows a fault smaller while it still shows it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/support/program.hpp"

namespace gradweave::tests {

inline program without_rank(program what, std::size_t rank) {
  const auto drop = [&](auto& by_rank) {
    std::copy(by_rank.begin() + rank + 1, by_rank.end(), by_rank.begin() + rank);
  };
  what.ranks -= 1;
  drop(what.data);
  std::for_each(what.directions.begin(), what.directions.end(), drop);
  for (program_step& step : what.steps) {
    drop(step.samples);
    std::for_each(step.passes.begin(), step.passes.end(), [&](program_pass& pass) { drop(pass.used); });
    step.wrong = step.culprit == rank ? mishap::nothing : step.wrong;
    step.culprit -= step.culprit > rank ? 1 : 0;
  }
  return what;
}

inline program without_slot(program what, std::size_t slot) {
  what.slots.erase(what.slots.begin() + static_cast<std::ptrdiff_t>(slot));
  const std::uint32_t below = (1U << slot) - 1;
  for (program_step& step : what.steps) {
    for (program_pass& pass : step.passes) {
      for (std::uint32_t& used : pass.used) {
        used = (used & below) | (used >> 1 & ~below);
      }
    }
  }
  return what;
}

inline program without_step(program what, std::size_t step) {
  what.steps.erase(what.steps.begin() + static_cast<std::ptrdiff_t>(step));
  for (std::size_t& with_data : what.data) {
    with_data -= with_data > step ? 1 : 0;
  }
  return what;
}

/// Everything that lacks one thing, or has the usual in its place: what takes most away comes first.
inline std::vector<program> simpler_programs(const program& what) {
  std::vector<program> all;
  const auto add = [&](auto&& change) {
    program changed = what;
    change(changed);
    all.push_back(std::move(changed));
  };
  for (std::size_t s = 0; s < what.steps.size() && what.steps.size() > 1; ++s) {
    all.push_back(without_step(what, s));
  }
  for (std::size_t rank = 0; rank < what.ranks && what.ranks > 1; ++rank) {
    all.push_back(without_rank(what, rank));
  }
  for (std::size_t slot = 0; slot < what.slots.size() && what.slots.size() > 1; ++slot) {
    all.push_back(without_slot(what, slot));
  }
  for (std::size_t b = 0; b < what.buffers.size(); ++b) {
    add([&](program& p) { p.buffers.erase(p.buffers.begin() + static_cast<std::ptrdiff_t>(b)); });
  }
  if (what.is_split()) {
    add([](program& p) {
      p.directions.assign(1, {});
      std::for_each(p.steps.begin(), p.steps.end(), [](program_step& step) { step.direction = 0; });
    });
  }
  const auto replace = [&](auto program::* member, auto usual) {
    if (what.*member != usual) {
      add([&](program& p) { p.*member = usual; });
    }
  };
  const program usual;
  replace(&program::data, usual.data);
  replace(&program::zero_fill, usual.zero_fill);
  replace(&program::recorded_uses, usual.recorded_uses);
  replace(&program::joined_left_out, usual.joined_left_out);
  replace(&program::average, usual.average);
  replace(&program::divide, usual.divide);
  replace(&program::compression, usual.compression);
  replace(&program::bucketing, usual.bucketing);
  replace(&program::progress_thread, usual.progress_thread);
  replace(&program::waits, usual.waits);
  for (std::size_t s = 0; s < what.slots.size(); ++s) {
    const auto simplify = [&](auto program_slot::* member, auto value) {
      if (what.slots[s].*member != value) {
        add([&](program& p) { p.slots[s].*member = value; });
      }
    };
    simplify(&program_slot::elements, std::size_t{1});
    simplify(&program_slot::format, number_format::float32);
    simplify(&program_slot::home, gradient_home::own);
    simplify(&program_slot::uses, std::uint32_t{1});
  }
  const std::uint32_t every = (1U << what.slots.size()) - 1;
  for (std::size_t s = 0; s < what.steps.size(); ++s) {
    const std::vector<program_pass>& passes = what.steps[s].passes;
    for (std::size_t p = 0; p < passes.size() && passes.size() > 1; ++p) {
      add([&](program& changed) {
        changed.steps[s].passes.erase(changed.steps[s].passes.begin() + static_cast<std::ptrdiff_t>(p));
      });
    }
    if (what.steps[s].wrong != mishap::nothing) {
      add([&](program& changed) { changed.steps[s].wrong = mishap::nothing; });
    }
    for (std::size_t p = 0; p < passes.size(); ++p) {
      for (std::size_t rank = 0; rank < what.ranks; ++rank) {
        if (passes[p].used[rank] != every) {
          add([&](program& changed) { changed.steps[s].passes[p].used[rank] = every; });
        }
      }
    }
  }
  return all;
}

/// `fails(program)` is asked until nothing can be taken away without it being false.
template <class Fails>
program shrink(program what, Fails&& fails) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (program& candidate : simpler_programs(what)) {
      if (fails(candidate)) {
        what = std::move(candidate);
        smaller = true;
        break;
      }
    }
  }
  return what;
}

}  // namespace gradweave::tests
