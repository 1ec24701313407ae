/// @file
/// No overlap: all buckets at the end of the step, on the thread that ends it.
#pragma once

#include <gradweave/description.hpp>
#include <gradweave/overlap/concept.hpp>

namespace gradweave::overlap {

/// What: collectives run on the caller at the end of the step. Models: overlap_policy. Semantics: nothing happens during
/// the backward pass. Cost: all communication is exposed. Threading: no thread of its own. Failure: none of its own.
/// Example: `gradweave::synchronize(std::move(gradients), backend, gradweave::overlap::blocking{})`.
struct blocking {
  friend bool operator==(const blocking&, const blocking&) = default;

  template <lane_work Work>
  class caller_lane {
   public:
    explicit caller_lane(Work& work) : work_(work) {}

    void notify() noexcept {}

    void drain() {
      while (work_.advance() != lane_status::finished) {
        work_.wait();
      }
    }

   private:
    Work& work_;
  };

  template <lane_work Work>
  caller_lane<Work> make_lane(Work& work) const {
    return caller_lane<Work>(work);
  }

  void describe(description& sink) const { sink.add("name", "blocking"); }
};

static_assert(overlap_policy<blocking>);

}  // namespace gradweave::overlap
