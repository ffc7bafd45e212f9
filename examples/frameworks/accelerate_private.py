"""Train a small classifier in a loop of one's own with Accelerate, with privacy."""

import torch
from accelerate import Accelerator
from torch import nn

import discreet as dp
from discreet.learning.integrations.accelerate import private_gradients

torch.manual_seed(0)
inputs = torch.randn(800, 10)
labels = (inputs[:, 0] > inputs[:, 1]).long()
data = torch.utils.data.TensorDataset(inputs[:600], labels[:600])

accelerator = Accelerator()
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=50)
model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)

account = dp.Ledger("people.ledger").account("people", budget=dp.ApproxDP(8.0, 1e-5))
plan = dp.learning.Plan.for_epsilon(4.0, delta=1e-5, examples=600, batch_size=60, epochs=5, clip_norm=1.0)
for _ in private_gradients(accelerator, plan, model, nn.CrossEntropyLoss(), data, account=account, optimizer=optimizer):
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()

with torch.no_grad():
    correct = (accelerator.unwrap_model(model).cpu()(inputs[600:]).argmax(1) == labels[600:]).float().mean()
print(f"{correct:.0%} of the others correct")
