// Remembers the candidates of the last shape.
#include "variant/offer.h"

#include <utility>

namespace moetune {

Offer::Offer(SearchSpace space, DeviceInfo device, int64_t drawn)
    : space_(std::move(space)), device_(std::move(device)), drawn_(drawn) {}

std::shared_ptr<const Enumeration> Offer::to(const Shape& shape, uint64_t seed) {
  if (!found_ || *shape_ != shape || (drawn_ > 0 && seed_ != seed)) {
    found_ = std::make_shared<const Enumeration>(drawn_ > 0 ? draw(space_, shape, device_, drawn_, seed)
                                                            : enumerate(space_, shape, device_));
    shape_ = shape, seed_ = seed;
  }
  return found_;
}

}  // namespace moetune
