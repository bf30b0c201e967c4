-- Pass through: the cost of decoding and of the runtime.
SELECT auction, bidder, price, datetime, extra FROM bid
