/// @file
/// Buckets of about equal size, filled in reversed registration order.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/manifest.hpp>

namespace gradweave::bucketing {

/// Caps of a bucket's size. Slots are not cut, and a bucket is closed once it has reached its cap, so buckets
/// overshoot: the behaviour of PyTorch's DistributedDataParallel (Li et al., VLDB 2020, section 3.2).
struct bucket_caps {
  std::size_t bucket_bytes_max = std::size_t{25} << 20;  ///< all but the first
  std::size_t first_bucket_bytes_max = std::size_t{1}
                                       << 20;  ///< small, so that communication begins early; never above the other

  friend bool operator==(const bucket_caps&, const bucket_caps&) = default;

  /// The caps with DISTRIBUTED_BUCKET_SIZE (in MiB, a positive decimal number) in place of `bucket_bytes_max` where that
  /// variable is set. Throws contract_violation where it is malformed.
  bucket_caps with_environment() const {
    const char* text = std::getenv("DISTRIBUTED_BUCKET_SIZE");
    if (text == nullptr) {
      return *this;
    }
    const std::string_view given(text);
    double mebibytes = 0;
    const auto [end, fault] = std::from_chars(given.data(), given.data() + given.size(), mebibytes);
    constexpr double mebibytes_max = 1 << 20;
    if (fault != std::errc{} || end != given.data() + given.size() || !(mebibytes > 0) || mebibytes > mebibytes_max) {
      violate("the environment variable DISTRIBUTED_BUCKET_SIZE is '" + std::string(given) +
              "'; it gives the bucket size in MiB as a positive number, 25 for example; correct or unset it");
    }
    bucket_caps caps = *this;
    caps.bucket_bytes_max = std::max<std::size_t>(1, static_cast<std::size_t>(mebibytes * double{1 << 20}));
    return caps;
  }

  void describe(description& sink) const {
    sink.add("bucket_bytes_max", bucket_bytes_max);
    sink.add("first_bucket_bytes_max", first_bucket_bytes_max);
  }
};

/// Fills buckets with the slots of `order`. Each element kind has buckets, and a first bucket, of its own; buckets are
/// launched in the order in which their last slot comes.
inline bucket_plan fill_buckets(std::span<const slot_size> slots, std::span<const slot> order,
                                const bucket_caps& caps) {
  struct open_bucket {
    std::vector<slot> members;
    std::size_t bytes = 0;
    std::size_t last = 0;  // position of its last slot in `order`
    bool first = true;
  };
  constexpr std::size_t kinds = 256;
  const std::size_t first_bytes_max = std::min(caps.first_bucket_bytes_max, caps.bucket_bytes_max);
  std::vector<open_bucket> open(kinds);
  std::vector<open_bucket> closed;
  const auto close = [&](open_bucket& bucket) {
    closed.push_back(std::move(bucket));
    bucket = {{}, 0, 0, false};
  };
  for (std::size_t position = 0; position < order.size(); ++position) {
    const slot_size& size = slots[order[position].index];
    open_bucket& bucket = open[static_cast<std::size_t>(size.kind)];
    bucket.members.push_back(order[position]);
    bucket.bytes += size.bytes;
    bucket.last = position;
    if (bucket.bytes >= (bucket.first ? first_bytes_max : caps.bucket_bytes_max)) {
      close(bucket);
    }
  }
  for (open_bucket& bucket : open) {
    if (!bucket.members.empty()) {
      close(bucket);
    }
  }
  std::sort(closed.begin(), closed.end(), [](const open_bucket& a, const open_bucket& b) { return a.last < b.last; });
  bucket_plan made;
  for (open_bucket& bucket : closed) {
    made.buckets.push_back(std::move(bucket.members));
  }
  return made;
}

/// All slots, the one registered last first: the order in which a backward pass usually reaches them.
inline std::vector<slot> reversed_registration_order(std::size_t slots) {
  std::vector<slot> order;
  for (std::size_t i = slots; i-- > 0;) {
    order.push_back({static_cast<std::uint32_t>(i)});
  }
  return order;
}

/// What: buckets of about `caps.bucket_bytes_max` in reversed registration order. Models: bucketing_policy. Semantics:
/// never plans anew. DISTRIBUTED_BUCKET_SIZE overrides the cap. Failure: contract_violation on a malformed variable.
/// Example: `bucketing::fixed_bytes{{.bucket_bytes_max = 4 << 20}}`.
struct fixed_bytes {
  bucket_caps caps;

  friend bool operator==(const fixed_bytes&, const fixed_bytes&) = default;

  bucket_plan plan(const bucketing_input& input) const {
    return fill_buckets(input.slots, reversed_registration_order(input.slots.size()), caps);
  }

  bool replans_after(std::uint64_t) const { return false; }

  fixed_bytes with_environment() const { return {caps.with_environment()}; }

  void describe(description& sink) const {
    sink.add("name", "fixed_bytes");
    caps.describe(sink);
  }
};

static_assert(bucketing_policy<fixed_bytes>);

}  // namespace gradweave::bucketing
