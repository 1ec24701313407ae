/// @file
/// The manifest: the list of gradients, in order, with name, element kind and shape. It is what ranks must share.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/element.hpp>
#include <gradweave/tensor.hpp>
#include <gradweave/tensor/gradient_view.hpp>

namespace gradweave {

/// The handle of one gradient: its position in the manifest.
struct slot {
  std::uint32_t index = 0;
  friend bool operator==(slot, slot) = default;
};

/// Where a slot's gradient lies in relation to the arena.
enum class residence : std::uint8_t {
  own,      ///< in the tensor's own memory: copied into the arena when ready, and back once reduced
  arena,    ///< in the arena, the tensor points there: nothing is copied
  adopted,  ///< in a flat buffer of the user's that the collectives work on directly: nothing is copied
};

/// Marks a gradient that shall take its memory from the arena. The tensor is pointed there when the manifest is sealed;
/// what it held before is not carried over.
template <gradient_tensor T>
struct in_arena {
  static_assert(
      rebindable_tensor<T>,
      "in_arena: the tensor can't be pointed at other memory; add gradweave_rebind(void*), or rebind(T&, void*) "
      "to its tensor_traits");
  T& tensor;
  explicit in_arena(T& t) : tensor(t) {}
};

/// How often a gradient becomes ready in each step: more than once for a parameter that several parts of a model share,
/// or whose part is computed again (activation checkpointing). It is reduced after the last time.
struct uses {
  std::uint32_t in_a_step = 1;
};

namespace detail {

template <class T>
inline constexpr bool is_in_arena = false;
template <class T>
inline constexpr bool is_in_arena<in_arena<T>> = true;

/// What manifest::add does not take, but for the marks.
template <class T>
concept no_tensor = !gradient_tensor<std::remove_reference_t<T>> && !is_in_arena<std::remove_cvref_t<T>> &&
                    !std::same_as<std::remove_cvref_t<T>, uses>;

/// Whether what it is a part of was moved elsewhere. It can't be copied, so that a manifest can't either: what is added to
/// one copy after the other was sealed would never be synchronized.
class moved_mark {
 public:
  moved_mark() = default;
  moved_mark(moved_mark&& other) noexcept : is_set_(std::exchange(other.is_set_, true)) {}
  moved_mark& operator=(moved_mark&& other) noexcept {
    is_set_ = std::exchange(other.is_set_, true);
    return *this;
  }

  bool is_set() const { return is_set_; }

 private:
  bool is_set_ = false;
};

}  // namespace detail

/// One line of the manifest.
struct manifest_entry {
  std::string name;
  gradient_view gradient;
  std::optional<gradient_view> parameter;  ///< broadcast from rank 0 when the manifest is sealed
  residence where = residence::own;
  std::uint32_t uses = 1;  ///< in each step
};

/// What all ranks hold of a buffer at the end of each step.
struct buffer_rule {
  int from = 0;              ///< the values of that rank,
  bool is_averaged = false;  ///< unless they are the average over ranks

  static constexpr buffer_rule broadcast(int from = 0) { return {from, false}; }
  static constexpr buffer_rule average() { return {0, true}; }

  friend constexpr bool operator==(const buffer_rule&, const buffer_rule&) = default;
};

/// What a model keeps besides its parameters, such as the running statistics of a batch normalization.
struct manifest_buffer {
  std::string name;
  gradient_view value;
  buffer_rule rule;
};

/// Gradients in registration order. Once moved into `synchronize` it takes no more. Tensors of different types and element kinds may be mixed. Tensors that are not
/// views (std::span is one) are kept by reference: they must outlive the synchronizer and stay at their address.
/// Parameters need to live only until `synchronize` returns.
class manifest {
 public:
  /// Registers a gradient. Throws contract_violation where the name is empty or taken, it has no uses, or the kind is not
  /// a floating one (an average of integers is not defined).
  template <class Gradient>
    requires gradient_tensor<std::remove_reference_t<Gradient>>
  slot add(std::string name, Gradient&& gradient, uses often = {}) {
    check_lifetime<Gradient>();
    check_floating<std::remove_reference_t<Gradient>>();
    return append({std::move(name), gradient_view::of(gradient), std::nullopt, residence::own, often.in_a_step});
  }

  /// Registers a gradient whose memory the arena provides.
  template <class Tensor>
  slot add(std::string name, in_arena<Tensor> gradient, uses often = {}) {
    return append(
        {std::move(name), gradient_view::of(gradient.tensor), std::nullopt, residence::arena, often.in_a_step});
  }

  /// Registers a parameter with its gradient: the parameter is broadcast from rank 0 when the manifest is sealed.
  /// Throws contract_violation, as above, and where both differ in the number of elements.
  template <class Parameter, class Gradient>
    requires(gradient_tensor<std::remove_reference_t<Parameter>> && !std::same_as<std::remove_cvref_t<Gradient>, uses>)
  slot add(std::string name, Parameter&& parameter, Gradient&& gradient, uses often = {}) {
    check_lifetime<Parameter>();
    const slot added = add(std::move(name), std::forward<Gradient>(gradient), often);
    manifest_entry& entry = entries_.back();
    entry.parameter = gradient_view::of(parameter);
    if (entry.parameter->elements() != entry.gradient.elements()) {
      const std::string message = "slot '" + entry.name + "': the parameter has " +
                                  std::to_string(entry.parameter->elements()) + " elements, its gradient " +
                                  std::to_string(entry.gradient.elements());
      names_.erase(entry.name);
      entries_.pop_back();
      violate(message);
    }
    return added;
  }

  /// Never compile: they say what a type misses to be a gradient_tensor.
  template <detail::no_tensor Gradient>
  slot add(std::string, Gradient&&, uses = {}) {
    gradweave::explain_gradient_tensor<std::remove_reference_t<Gradient>>();
    return {};
  }
  template <detail::no_tensor Parameter, class Gradient>
  slot add(std::string, Parameter&&, Gradient&&, uses = {}) {
    gradweave::explain_gradient_tensor<std::remove_reference_t<Parameter>>();
    return {};
  }

  /// Registers `elements` elements at `memory`, a flat buffer that the collectives then work on directly. It must stay
  /// where it is as long as the synchronizer lives.
  template <element Element>
  slot add_range(std::string name, Element* memory, std::size_t elements, uses often = {}) {
    static_assert(is_floating(element_kind_of<Element>),
                  "manifest: a gradient is averaged, so it has to be floating-point");
    require(memory != nullptr || elements == 0, "add_range: the pointer is null");
    return append({std::move(name), gradient_view::of_buffer(element_kind_of<Element>, memory, elements), std::nullopt,
                   residence::adopted, often.in_a_step});
  }

  /// Registers a buffer, of any element kind. It becomes equal on all ranks when the manifest is sealed, and at the end of
  /// each step. Throws contract_violation where the name is empty or taken, or the average of integers is asked for.
  template <class Tensor>
    requires gradient_tensor<std::remove_reference_t<Tensor>>
  void add_buffer(std::string name, Tensor&& buffer, buffer_rule rule = {}) {
    check_lifetime<Tensor>();
    gradient_view value = gradient_view::of(buffer);
    if (rule.is_averaged && !is_floating(value.kind())) {
      violate("manifest: buffer '" + name + "' has element kind " + std::string(element_name(value.kind())) +
              ", and only floating-point ones can be averaged; give it buffer_rule::broadcast()");
    }
    take_name(name, "buffer", buffers_.size());
    buffers_.push_back({std::move(name), value, rule});
  }

  /// Never compiles: says what a type misses to be a gradient_tensor.
  template <detail::no_tensor Tensor>
  void add_buffer(std::string, Tensor&&, buffer_rule = {}) {
    gradweave::explain_gradient_tensor<std::remove_reference_t<Tensor>>();
  }

  /// How many gradients there are.
  std::size_t size() const { return entries_.size(); }
  std::span<const manifest_buffer> buffers() const { return buffers_; }
  std::span<const manifest_entry> entries() const { return entries_; }
  std::span<manifest_entry> entries() { return entries_; }

 private:
  template <class T>
  static constexpr void check_lifetime() {
    static_assert(std::is_lvalue_reference_v<T> || tensor_view<std::remove_reference_t<T>>,
                  "manifest: a temporary tensor that owns its memory would dangle; register a named one, or a view");
  }

  /// Where the pointer's type tells the kind; where it is told at run time, append() looks at it.
  template <class T>
  static constexpr void check_floating() {
    if constexpr (!detail::tells_kind<T>) {
      static_assert(is_floating(element_kind_of<std::remove_pointer_t<detail::tensor_pointer<T>>>),
                    "manifest: a gradient is averaged, so it has to be floating-point");
    }
  }

  void take_name(const std::string& name, const char* what, std::size_t number) {
    require(!moved_.is_set(),
            "manifest: it was given to synchronize, which compares it over all ranks once; register everything before");
    if (name.empty()) {
      violate("manifest: " + std::string(what) + " " + std::to_string(number) + " has an empty name");
    }
    if (!names_.insert(name).second) {
      violate("manifest: the name '" + name + "' is taken; each slot or buffer needs a name of its own");
    }
  }

  slot append(manifest_entry entry) {
    if (entry.uses == 0) {
      violate("manifest: slot '" + entry.name + "' is used 0 times in a step; leave it out, or give it a use");
    }
    if (!is_floating(entry.gradient.kind())) {
      violate("manifest: slot '" + entry.name + "' has element kind " +
              std::string(element_name(entry.gradient.kind())) +
              "; gradients are averaged, so they have to be floating-point");
    }
    take_name(entry.name, "slot", entries_.size());
    entries_.push_back(std::move(entry));
    return {static_cast<std::uint32_t>(entries_.size() - 1)};
  }

  std::vector<manifest_entry> entries_;
  std::vector<manifest_buffer> buffers_;
  std::unordered_set<std::string> names_;
  detail::moved_mark moved_;
};

}  // namespace gradweave
