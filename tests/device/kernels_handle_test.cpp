#include <gradweave/device/kernels_handle.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include <gradweave/device/host_kernels.hpp>
#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;

static_assert(gw::explain_device_kernels<gw::kernels_handle<gw::host_stream>>());
static_assert(std::copyable<gw::kernels_handle<gw::host_stream>>);
static_assert(std::convertible_to<gw::testing::device_kernels_archetype,
                                  gw::kernels_handle<gw::testing::device_kernels_archetype::stream>>);
static_assert(!std::convertible_to<gw::host_kernels, gw::kernels_handle<int>>);

namespace {

/// Says what it was asked for.
struct telling_kernels {
  using stream = int;
  struct extent_table {
    std::size_t extents;
  };
  std::string* said;

  void tell(const char* what, int on) const { *said += what + std::to_string(on) + " "; }
  extent_table prepare(std::span<const gw::extent> memory, gw::element_kind) const { return {memory.size()}; }
  void gather(int on, extent_table& table, std::byte*) const { tell("gather", on + static_cast<int>(table.extents)); }
  void scatter(int on, extent_table& table, const std::byte*, gw::scatter_summary*) const {
    tell("scatter", on + static_cast<int>(table.extents++));
  }
  void scale(int on, const gw::scale_request& request) const { tell("scale", on + static_cast<int>(request.elements)); }
  void encode(int on, const gw::encode_request&) const { tell("encode", on); }
  void sum(int on, const gw::sum_request&) const { tell("sum", on); }
  void write_record(int on, const gw::record_request&) const { tell("write", on); }
  void judge_records(int on, const gw::judge_request&) const { tell("judge", on); }
};

}  // namespace

TEST_CASE("kernels handle: each operation is the kernels' own, also of a copy that outlives the first") {
  std::string said;
  auto first = std::make_unique<gw::kernels_handle<int>>(telling_kernels{&said});
  const gw::kernels_handle<int> copy = *first;
  first.reset();
  const std::array<gw::extent, 3> memory{};
  auto table = copy.prepare(memory, gw::element_kind::float32);
  auto moved = std::move(table);
  copy.gather(10, moved, nullptr);
  copy.scatter(20, moved, nullptr, nullptr);
  copy.scatter(20, moved, nullptr, nullptr);
  gw::scale_request request;
  request.elements = 7;
  copy.scale(30, request);
  copy.encode(40, {});
  copy.sum(50, {});
  copy.write_record(60, {});
  copy.judge_records(70, {});
  CHECK(said == "gather13 scatter23 scatter24 scale37 encode40 sum50 write60 judge70 ");
}
