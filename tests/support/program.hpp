/// @file
/// A training program as data, made from a seed: what each rank registers, uses, accumulates and breaks. It knows nothing
/// of the library, so that tests/support/reference.hpp can work out what has to come of it independently.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

namespace gradweave::tests {

inline constexpr std::size_t program_ranks_max = 4;

template <class T>
using each_rank = std::array<T, program_ranks_max>;

enum class number_format { float32, float64, float16, bfloat16 };
enum class gradient_home { own, arena, adopted };
enum class program_average { mean, sum, weighted };
enum class program_division { after, before, split };
enum class program_compression { none, fp16, bf16, per_hop, hook };
enum class program_bucketing { per_tensor, fixed, ready_order, merge_optimal, needed_first };

/// What goes wrong in a step, on one rank.
enum class mishap {
  nothing,
  forgets,  ///< to accumulate as often as the others
  throws,   ///< an exception in the middle of a backward pass
  repeats,  ///< uses a gradient more often than it said
  drops,    ///< leaves a step without its end
  reduces,  ///< an exception in what on_reduced was given
};

struct program_slot {
  number_format format = number_format::float32;
  gradient_home home = gradient_home::own;
  std::size_t elements = 1;
  std::uint32_t uses = 1;
};

struct program_buffer {
  number_format format = number_format::float32;
  bool averaged = false;
  std::size_t from = 0;  ///< the rank in the group, of those that there are
};

/// One backward pass: a bit for each slot that a rank uses.
struct program_pass {
  each_rank<std::uint32_t> used{};
};

/// Several passes: the last is sent, those before it accumulate.
struct program_step {
  std::size_t direction = 0;
  std::vector<program_pass> passes{1};
  each_rank<std::uint64_t> samples{1, 1, 1, 1};
  mishap wrong = mishap::nothing;
  std::size_t culprit = 0;     ///< of the job's ranks
  std::size_t in_pass = 0;     ///< where that is, of the passes that there are
  std::size_t after_uses = 0;  ///< of the uses that there are
};

struct program {
  std::uint64_t seed = 0;
  std::size_t ranks = 1;
  std::vector<program_slot> slots;
  std::vector<program_buffer> buffers;
  /// Ranks of one colour are a group, with a synchronizer; a step is one of a direction. One direction of one colour is the
  /// whole job, not split.
  std::vector<each_rank<int>> directions{1};
  std::vector<program_step> steps;
  each_rank<std::size_t> data{~std::size_t{0}, ~std::size_t{0}, ~std::size_t{0}, ~std::size_t{0}};  ///< steps with data

  bool zero_fill = false;
  bool recorded_uses = false;
  bool joined_left_out = false;
  program_average average = program_average::mean;
  program_division divide = program_division::after;

  program_compression compression = program_compression::none;
  program_bucketing bucketing = program_bucketing::per_tensor;
  bool progress_thread = false;
  bool waits = false;  ///< for single gradients, at the end of each step

  bool has_data(std::size_t rank, std::size_t step) const { return step < data[rank]; }

  bool is_split() const {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (directions[0][rank] != directions[0][0]) {
        return true;
      }
    }
    return directions.size() > 1;
  }

  std::vector<std::size_t> group_of(std::size_t rank, std::size_t direction) const {
    std::vector<std::size_t> members;
    for (std::size_t other = 0; other < ranks; ++other) {
      if (directions[direction][other] == directions[direction][rank]) {
        members.push_back(other);
      }
    }
    return members;
  }

  /// The first of a step's passes that a rank makes.
  std::size_t first_pass(std::size_t rank, std::size_t step) const {
    const bool forgets = steps[step].wrong == mishap::forgets && steps[step].culprit == rank;
    return forgets ? steps[step].passes.size() - 1 : 0;
  }

  /// Whether a backward pass of a rank does not get to its end.
  bool breaks_off(std::size_t rank, std::size_t step, std::size_t pass) const {
    const program_step& what = steps[step];
    return what.culprit == rank && what.in_pass % what.passes.size() == pass &&
           (what.wrong == mishap::throws || what.wrong == mishap::repeats || what.wrong == mishap::drops);
  }

  /// The slots that a rank uses in any pass of a step: a bit each.
  std::uint32_t used_by(std::size_t rank, std::size_t step) const {
    std::uint32_t used = 0;
    for (std::size_t pass = first_pass(rank, step); pass < steps[step].passes.size(); ++pass) {
      used |= steps[step].passes[pass].used[rank];
    }
    return used;
  }

  /// Whether what a rank gave to on_reduced throws. Of gradients of others alone it is told too late for this step.
  bool breaks_reducing(std::size_t rank, std::size_t step) const {
    return steps[step].wrong == mishap::reduces && steps[step].culprit == rank && used_by(rank, step) != 0;
  }

  /// How often a rank uses a slot in each pass of a step, where it does. Where uses are recorded, a slot that the very
  /// first pass over a direction leaves out is used once from then on.
  std::uint32_t times(std::size_t rank, std::size_t step, std::size_t slot) const {
    for (std::size_t s = 0; recorded_uses && s <= step; ++s) {
      if (steps[s].direction == steps[step].direction) {
        const bool learned = (steps[s].passes[first_pass(rank, s)].used[rank] >> slot & 1) != 0;
        return learned ? slots[slot].uses : 1;
      }
    }
    return slots[slot].uses;
  }

  std::uint64_t draw(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0) const {
    std::uint64_t h = seed * 0x9e3779b97f4a7c15U + a * 0xbf58476d1ce4e5b9U + b * 0x94d049bb133111ebU + c;
    h = (h ^ h >> 31) * 0xd6e8feb86659fd93U;
    h = (h ^ h >> 29) * 0xa0761d6478bd642fU;
    return h ^ h >> 32;
  }

  /// What a pass adds to an element of a gradient. Integers so small that every format holds the sums of all passes: what
  /// is rounded is the average alone.
  double gradient(std::size_t rank, std::size_t step, std::size_t pass, std::size_t slot, std::size_t element) const {
    return static_cast<double>(draw(step * 64 + pass, rank * 64 + slot, element) % 17) - 8;
  }
  /// What it is before the first step.
  static double begin(std::size_t rank) { return -static_cast<double>(rank) - 20; }
  /// What a step of a rank leaves in a buffer.
  double buffer(std::size_t rank, std::size_t step, std::size_t which) const {
    return static_cast<double>(draw(step, rank, which + 1000) % 100);
  }
};

/// What a test may ask of a random program.
struct program_rules {
  std::size_t ranks = 1;
  program_compression compression = program_compression::none;
  bool progress_thread = false;
  program_average average = program_average::mean;
  program_division divide = program_division::after;
  bool joined_left_out = false;
  bool zero_fill = false;
};

inline program random_program(std::uint64_t seed, const program_rules* asked = nullptr) {
  program made;
  made.seed = seed;
  std::uint64_t drawn = 0;
  const auto below = [&](std::uint64_t end) { return made.draw(~std::uint64_t{0}, ++drawn) % end; };
  const auto one_in = [&](std::uint64_t n) { return below(n) == 0; };
  made.ranks = 1 + below(program_ranks_max);
  made.ranks = asked != nullptr ? asked->ranks : made.ranks;
  constexpr std::size_t sizes[] = {0, 1, 2, 3, 7, 16, 40, 333};
  made.slots.resize(1 + below(5));
  for (program_slot& each : made.slots) {
    each = {static_cast<number_format>(below(4)), static_cast<gradient_home>(below(3)), sizes[below(8)],
            static_cast<std::uint32_t>(one_in(3) ? 1 + below(3) : 1)};
  }
  made.buffers.resize(one_in(3) ? 1 + below(3) : 0);
  for (program_buffer& each : made.buffers) {
    each = {static_cast<number_format>(below(4)), one_in(2), below(program_ranks_max)};
  }
  if (one_in(4)) {  // rows and columns of a grid, or any groups
    made.directions = one_in(2)
                          ? std::vector<each_rank<int>>{{0, 0, 1, 1}, {0, 1, 0, 1}}
                          : std::vector<each_rank<int>>{{0, static_cast<int>(below(2)), static_cast<int>(below(2)), 1}};
  }
  made.zero_fill = one_in(2);
  made.recorded_uses = one_in(4);
  made.average = static_cast<program_average>(one_in(2) ? below(3) : 0);
  made.divide = static_cast<program_division>(made.average == program_average::mean && one_in(2) ? below(3) : 0);
  made.joined_left_out = made.average == program_average::mean && made.divide == program_division::after && one_in(2);
  made.compression = static_cast<program_compression>(one_in(2) ? below(5) : 0);
  made.bucketing = static_cast<program_bucketing>(below(5));
  if (made.bucketing == program_bucketing::needed_first && one_in(7)) {
    made.slots.back().elements = 9000;  // so many that they travel in slices
  }
  made.progress_thread = one_in(8);
  made.waits = one_in(4);
  if (asked != nullptr) {
    made.compression = asked->compression;
    made.progress_thread = asked->progress_thread;
    made.average = asked->average;
    made.divide = asked->divide;
    made.joined_left_out = asked->joined_left_out;
    made.zero_fill = asked->zero_fill;
  }

  const std::uint32_t all = (1U << made.slots.size()) - 1;
  made.steps.resize(1 + below(4));
  for (program_step& step : made.steps) {
    step.direction = below(made.directions.size());
    step.passes.resize(one_in(2) ? 1 : 1 + below(3));
    for (program_pass& pass : step.passes) {
      for (std::uint32_t& used : pass.used) {
        const bool leaves_out = made.zero_fill ? one_in(2) : one_in(100);
        used = leaves_out ? static_cast<std::uint32_t>(below(all + 1)) : all;
      }
    }
    for (std::uint64_t& samples : step.samples) {
      samples = below(5);
    }
    if (one_in(16)) {
      step.wrong = static_cast<mishap>(1 + below(5));
      if (step.wrong == mishap::repeats && made.recorded_uses) {
        step.wrong = mishap::throws;  // the first pass would learn from it
      }
      step.culprit = below(made.ranks);
      step.in_pass = below(3);
      step.after_uses = below(8);
    }
  }
  // Who has run out of data waits for one group, so that there must not be another to wait for it.
  if (made.directions.size() == 1 && one_in(2)) {
    for (std::size_t& steps : made.data) {
      steps = below(made.steps.size() + 1);
    }
  }
  return made;
}

/// For who has to look into one that fails.
inline std::string to_text(const program& what) {
  constexpr const char* formats[] = {"float32", "float64", "float16", "bfloat16"};
  constexpr const char* homes[] = {"own", "arena", "adopted"};
  constexpr const char* averages[] = {"mean", "sum", "weighted mean"};
  constexpr const char* divisions[] = {"after", "before", "split"};
  constexpr const char* compressions[] = {"none", "fp16", "bf16", "per_hop_rounding", "hook"};
  constexpr const char* bucketings[] = {"per_tensor", "fixed_bytes", "ready_order", "merge_optimal", "needed_first"};
  constexpr const char* mishaps[] = {"", "forgets", "throws", "repeats", "drops", "throws in on_reduced"};
  const auto name = [](const auto& names, auto which) { return names[static_cast<std::size_t>(which)]; };
  std::ostringstream text;
  text << what.ranks << " ranks; " << name(averages, what.average) << ", division " << name(divisions, what.divide)
       << (what.zero_fill ? ", zero_fill" : ", strict") << (what.recorded_uses ? ", uses recorded" : "")
       << (what.joined_left_out ? ", joined left out" : "") << "; " << name(compressions, what.compression) << ", "
       << name(bucketings, what.bucketing) << (what.progress_thread ? ", progress_thread" : ", blocking")
       << (what.waits ? ", waits\n" : "\n");
  for (std::size_t d = 0; d < what.directions.size() && what.is_split(); ++d) {
    text << "  direction " << d << ": colours";
    for (std::size_t rank = 0; rank < what.ranks; ++rank) {
      text << " " << what.directions[d][rank];
    }
    text << "\n";
  }
  for (std::size_t s = 0; s < what.slots.size(); ++s) {
    const program_slot& slot = what.slots[s];
    text << "  slot " << s << ": " << slot.elements << " " << name(formats, slot.format) << ", "
         << name(homes, slot.home) << ", uses " << slot.uses << "\n";
  }
  for (std::size_t b = 0; b < what.buffers.size(); ++b) {
    const program_buffer& buffer = what.buffers[b];
    text << "  buffer " << b << ": " << name(formats, buffer.format)
         << (buffer.averaged ? ", average" : ", of rank " + std::to_string(buffer.from)) << "\n";
  }
  for (std::size_t s = 0; s < what.steps.size(); ++s) {
    const program_step& step = what.steps[s];
    text << "  step " << s << " of direction " << step.direction << ":";
    for (std::size_t rank = 0; rank < what.ranks; ++rank) {
      text << (rank == 0 ? " rank " : "; rank ") << rank;
      if (!what.has_data(rank, s)) {
        text << " has no data";
        continue;
      }
      text << " (" << step.samples[rank] << " samples) uses";
      for (std::size_t pass = what.first_pass(rank, s); pass < step.passes.size(); ++pass) {
        text << (pass + 1 == step.passes.size() ? " {" : " accumulating {");
        for (std::size_t slot = 0; slot < what.slots.size(); ++slot) {
          text << ((step.passes[pass].used[rank] >> slot & 1) != 0 ? " " + std::to_string(slot) : "");
        }
        text << " }";
      }
    }
    if (step.wrong != mishap::nothing && step.wrong != mishap::forgets) {
      text << "; rank " << step.culprit << " " << name(mishaps, step.wrong) << " in pass "
           << step.in_pass % step.passes.size() << " after " << step.after_uses << " uses";
    }
    text << "\n";
  }
  return text.str();
}

}  // namespace gradweave::tests
